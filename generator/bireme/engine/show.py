"""What `bireme engine` prints: one block a network, or JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bireme.engine.build_engine import Outcome

__all__ = ["as_data", "as_table"]

_MIB = 1 << 20
_LONGEST_WARNING = 300


def as_data(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """JSON values."""
    return [
        {
            "model": outcome.model,
            "folder": str(outcome.folder),
            "built": outcome.built,
            "seconds": round(outcome.seconds, 1),
            "passport": dataclasses.asdict(outcome.passport),
            "report": outcome.report,
        }
        for outcome in outcomes
    ]


def as_table(outcome: Outcome) -> RenderableType:
    """One network: what was built, of what it consists, what TensorRT warned of."""
    passport, report = outcome.passport, outcome.report
    title = f"{outcome.model}: " + (
        f"built in {outcome.seconds:.0f} s" if outcome.built else "up to date (--force builds it again)"
    )
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    for name, text in _rows(outcome):
        table.add_row(name, escape(text))
    warnings = [
        Text(f"TensorRT warns: {line[:_LONGEST_WARNING]}") for line in report.get("warnings", []) if line
    ]
    note = [] if passport.precision != "fp32" else [Text("the network has no FP16: all is FP32")]
    return Group(table, *note, *warnings)


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    passport, report = outcome.passport, outcome.report
    gpu = passport.gpu
    rows = [
        ("plan", f"{passport.plan['bytes'] / _MIB:,.1f} MB in {outcome.folder}"),
        ("built by", f"TensorRT {passport.tensorrt} ({passport.built_by}), types: {passport.precision}"),
        ("for", f"{gpu.name}, compute capability {gpu.compute_capability}, driver {passport.driver or '?'}"),
    ]
    for name, shapes in passport.profile.items():
        span = f"{_text(shapes.min)} to {_text(shapes.max)}"
        rows.append((f"input {name}", f"{span}, tuned for {_text(shapes.opt)}"))
    if report.get("layer_count") is not None:
        kinds = _counts(report.get("layers_by_precision"))
        kernels = f", {report['kernels']} different kernels" if report.get("kernels") is not None else ""
        rows.append(("layers", f"{report['layer_count']}{kinds}{kernels}"))
    if report.get("wanted_fp32"):
        rows.append(("kept FP32", f"{len(report['wanted_fp32'])} nodes"))
    largest = report.get("largest_tensors")
    if largest:
        texts = (f"{entry['tensor']} {entry['bytes'] / _MIB:,.1f} MB" for entry in largest[:3])
        rows.append(("largest tensors", ", ".join(texts)))
    if report.get("device_memory_bytes") is not None:
        rows.append(("GPU memory", f"{report['device_memory_bytes'] / _MIB:,.1f} MB a context, and the plan"))
    return rows


def _counts(found: Mapping[str, int] | None) -> str:
    if not found:
        return ""
    parts = sorted(found.items(), key=lambda item: -item[1])
    return ": " + ", ".join(f"{count} {name}" for name, count in parts)


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
