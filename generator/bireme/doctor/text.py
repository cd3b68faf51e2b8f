"""Findings as a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from bireme.doctor.finding import SEVERITIES, Finding

__all__ = ["as_table", "summary"]

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan", "ok": "green"}


def as_table(findings: Sequence[Finding]) -> Table:
    """One row a finding, in the given order."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "", "looked at", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for one in findings:
        style = _STYLES[one.severity]
        found = one.found + (f" – {one.why}" if one.why else "")
        cells = (one.code, one.about, found, one.remedy)
        table.add_row(f"[{style}]{one.severity}[/]", *map(escape, cells))
    return table


def summary(findings: Sequence[Finding]) -> str:
    """How many of each severity."""
    count = Counter(finding.severity for finding in findings)
    words = {"error": "errors", "warning": "warnings", "note": "notes", "ok": "ok"}
    return ", ".join(f"{count[severity]} {words[severity]}" for severity in SEVERITIES)
