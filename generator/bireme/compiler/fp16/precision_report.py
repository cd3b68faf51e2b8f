"""The precision section of the report: what stays FP32 and why, on what evidence, at what cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bireme.compiler.fp16.precision import Precision
from bireme.compiler.fp16.ranking import Change

__all__ = ["precision_data", "precision_text"]


def precision_data(precision: Precision) -> dict[str, Any]:
    """As JSON values; what is not known (an AUC where all labels are alike) is null."""
    return {
        "mode": precision.mode,
        "handover": precision.handover,
        "handover_reason": precision.handover_reason,
        "kept_fp32": [dataclasses.asdict(kept) for kept in precision.kept],
        "computing_nodes": precision.computing,
        "flops_kept_fp32": precision.flops_kept,
        "clipped": [dataclasses.asdict(mask) for mask in precision.clipped],
        "evaluations": precision.evaluations,
        "search_complete": precision.complete,
        "held_out_confirmed": precision.confirmed,
        "samples": {
            "recorded": precision.recorded,
            "made_up": precision.made_up,
            "refused": precision.refused,
        },
        "auc_of": dict(precision.auc_of or {}),
        "searched": _changes(precision.searched),
        "held_out": _changes(precision.held_out),
        "damage_alone": {name: _number(value) for name, value in (precision.alone or {}).items()},
    }


def _changes(changes: Mapping[str, Change] | None) -> dict[str, dict[str, Any]]:
    return {
        task: {name: _number(value) for name, value in dataclasses.asdict(change).items()}
        for task, change in (changes or {}).items()
    }


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def precision_text(data: Mapping[str, Any]) -> RenderableType:
    """For a terminal."""
    if data["mode"] == "fp32":
        return Text("Precision: FP32 throughout")
    kept = Table(title="Precision: what stays FP32", title_justify="left")
    for column in ("layer", "nodes", "why"):
        kept.add_column(column, overflow="fold")
    if data["handover"] == "float32":
        kept.add_row("hand-over", "user, items", data["handover_reason"])
    rows: dict[tuple[str, str], list[str]] = {}
    for entry in data["kept_fp32"]:
        rows.setdefault((entry["layer"], entry["reason"]), []).append(entry["node"])
    for (layer, reason), nodes in rows.items():
        kept.add_row(layer, ", ".join(nodes), reason)
    changes = Table(title="FP16 against FP32, held-out requests", title_justify="left")
    for column in ("task", "largest score change", "AUC", "AUC change", "largest move"):
        changes.add_column(column, overflow="fold")
    for task, change in data["held_out"].items():
        auc = "labels are all alike" if change["auc"] is None else f"{change['reference_auc']:.4f}"
        moved = "" if change["auc"] is None else f"{change['auc']:.1e}"
        places = f"{change['rank_move']} places"
        changes.add_row(task, f"{change['score']:.1e}", auc, moved, places)
    tables = [kept] if kept.row_count else []
    return Group(*tables, Text(_summary(data)), changes)


def _summary(data: Mapping[str, Any]) -> str:
    samples = data["samples"]
    lines = [
        f"{len(data['kept_fp32'])} of {data['computing_nodes']} computing nodes stay FP32"
        f" ({data['flops_kept_fp32']:.1%} of the multiply-adds), {data['handover']} hand-over;"
        f" {data['evaluations']} evaluations on {samples['recorded']} recorded and {samples['made_up']}"
        " made-up requests, on this CPU, rounded as FP16 rounds.",
        *(
            f"{mask['origin']}: its mask {mask['value']:.4g} is drawn into FP16's range; no score changes."
            for mask in data["clipped"]
        ),
    ]
    if not samples["recorded"]:
        lines.append(
            "No recorded requests: `samples` in the spec would show the real ranges of your features."
        )
    if samples["refused"]:
        lines.append(f"{samples['refused']} recorded requests are left out: the served model refuses them.")
    lines.extend(f"AUC of '{task}' is that of {source}." for task, source in data["auc_of"].items())
    if not data["search_complete"]:
        lines.append("The search ran out of `evaluations`; more might keep fewer nodes in FP32.")
    if not data["held_out_confirmed"]:
        lines.append(
            "The held-out half did not confirm the first result, so the search was repeated on all requests:"
            " none is held out any more."
        )
    return "\n".join(lines)
