"""The report as one HTML page that needs nothing else: no network, no scripts, no fonts.

The tables are those of the terminal; `report_picture` places the picture; the template decides nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bireme import __version__
from bireme.compiler.reporting.report import text_sections
from bireme.compiler.reporting.report_picture import draw

__all__ = ["as_html"]

_NUMBER = re.compile(r"[-+]?[\d,]+(\.\d+)?(e[-+]?\d+)?%?")
_TEMPLATES = Environment(
    loader=PackageLoader("bireme.compiler.reporting"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=True,
)


@dataclass
class _Section:
    """A table, or a paragraph (no columns).

    Args:
        title: its heading; "" for none.
        columns: heads of the columns.
        rows: (CSS class, cells), each cell (CSS class, text).
        note: a sentence below.
    """

    title: str = ""
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    note: str = ""


def as_html(report: dict[str, Any]) -> str:
    """A report (`report.as_data`, perhaps with more sections) as a page. Equal reports give equal pages."""
    sides = {side: [f for f in report["features"] if f["side"] == side] for side in ("user", "item")}
    last = report["requests"][-1]
    facts = [
        ("target", report["target"]),
        ("tasks", ", ".join(report["tasks"])),
        ("features", f"{len(sides['user'])} of the user, {len(sides['item'])} of an item"),
        ("tables", f"{len(report['tables'])}, {sum(t['bytes'] for t in report['tables']):,} bytes"),
        (
            "hand-over",
            f"user [{report['handover']['user_width']}], items [N, {report['handover']['item_width']}],"
            f" {report['handover']['dtype']}",
        ),
        (
            f"work for {last['candidates']} candidates",
            f"{last['flops'] / 1e6:,.2f} MFLOP; {last['flops_rowwise'] / 1e6:,.2f} without user_once",
        ),
        ("subgraphs on TensorFlow (slow)", str(sum(entry["slow"] for entry in report["engines"]))),
    ]
    sections = [section for part in text_sections(report) for section in _sections(part)]
    return _TEMPLATES.get_template("report.html.j2").render(
        model=report["model"], facts=facts, picture=draw(report), sections=sections, version=__version__
    )


def _sections(part: RenderableType) -> list[_Section]:
    """What the terminal shows, as data."""
    if isinstance(part, Group):
        return [section for inner in part.renderables for section in _sections(inner)]
    if isinstance(part, Text):
        return [_Section(note=part.plain)]
    assert isinstance(part, Table)
    columns = [list(column.cells) for column in part.columns]
    return [
        _Section(
            title=str(part.title),
            columns=[str(column.header) for column in part.columns],
            rows=[
                ("slow" if part.rows[index].style else "", [_cell(str(cell)) for cell in cells])
                for index, cells in enumerate(zip(*columns, strict=True))
            ],
            note=str(part.caption or ""),
        )
    ]


def _cell(text: str) -> tuple[str, str]:
    return ("number" if _NUMBER.fullmatch(text) else "", text)
