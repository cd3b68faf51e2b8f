"""The precision record as a picture: AUC change, rank moves, and what stays FP32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw"]

_LIMIT = "#555555"
#: Key of a result, its colour, its place on the line.
_SERIES = (
    ("searched", "#1b7837", -0.26),
    ("strict", "#2166ac", 0.0),
    ("everything_fp16", "#b2182b", 0.26),
)
#: What a change of exactly 0 is drawn as, on a logarithmic axis.
_FLOOR = 1e-8


def draw(results: Sequence[Mapping[str, Any]], candidates: int, rows: int) -> Figure:
    """One line a model and task.

    Args:
        results: as `precision.record` gives them.
        candidates: of a held-out request.
        rows: held out in all.
    """
    lines = [(result, task) for result in results for task in result["fp32"]["tasks"]]
    figure = Figure(figsize=(13, 2.4 + 0.95 * len(lines)), layout="constrained")
    aucs, moves, kept = figure.subplots(1, 3, sharey=True, width_ratios=(1.3, 1, 1))
    for line, (result, task) in enumerate(lines):
        for key, color, shift in _SERIES:
            entry = result[key]["tasks"][task]
            lost = bool(entry["lost_scores"])
            _bar(
                aucs,
                line + shift,
                None if lost else max(entry["auc"], _FLOOR),
                "scores lost",
                color,
                "{:.0e}",
            )
            _bar(moves, line + shift, None if lost else entry["rank_move"], "scores lost", color, "{:.0f}")
            if "precision" in result[key]:
                _kept(kept, line + shift, result[key]["precision"], color)
    aucs.set_xscale("log")
    aucs.set_xlim(_FLOOR, 1)
    aucs.axvline(1e-4, color=_LIMIT, lw=1, ls="--")
    aucs.annotate("limit 1e-4", (1e-4, -0.62), (3, 0), textcoords="offset points", color=_LIMIT, fontsize=8)
    aucs.set_title("change of AUC (of the clicks)", fontsize=11)
    moves.set_title(f"largest move, places of {candidates}", fontsize=11)
    moves.set_xlim(0, max(10, 1.2 * moves.get_xlim()[1]))
    kept.set_title("% of computing nodes that stay FP32", fontsize=11)
    kept.set_xlim(0, 130)
    kept.set_xticks(range(0, 101, 20))
    for panel in (aucs, moves, kept):
        panel.grid(axis="x", alpha=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    aucs_before = [result["fp32"]["tasks"][task]["auc_after"] for result, task in lines]
    names = [
        f"{r['model']}\n{task}, AUC {known:.3f}" for (r, task), known in zip(lines, aucs_before, strict=True)
    ]
    aucs.set_yticks(range(len(lines)), names, fontsize=9)
    aucs.set_ylim(len(lines) - 0.4, -0.8)
    figure.suptitle(
        "FP16 against FP32: searched (green), searched within stricter limits (blue), every node FP16 (red)",
        fontsize=13,
        x=0.01,
        ha="left",
    )
    figure.supxlabel(
        f"{rows:,} held-out rows a model · FP16 emulated on the CPU, rounded after every op", fontsize=9
    )
    return figure


def _kept(panel: Any, y: float, precision: Mapping[str, Any], color: str) -> None:
    """How many nodes stay FP32."""
    count, computing = len(precision["kept_fp32"]), precision["computing_nodes"]
    text = f"{count} of {computing}, {precision['flops_kept_fp32']:.0%} of the products"
    text += ", hand-over" if precision["handover"] == "float32" else ""
    panel.barh(y, 100 * count / computing, 0.22, color=color)
    where = (100 * count / computing, y)
    panel.annotate(text, where, (4, 0), textcoords="offset points", va="center", fontsize=8, color=color)


def _bar(panel: Any, y: float, value: float | None, otherwise: str, color: str, form: str) -> None:
    """A bar with its number; where there is none, words."""
    low = panel.get_xlim()[0] if value is None else value
    if value is not None:
        panel.barh(y, value, 0.22, color=color)
    text = otherwise if value is None else form.format(value)
    where = (_FLOOR if low <= 0 or value is None else value, y)
    panel.annotate(text, where, (4, 0), textcoords="offset points", va="center", fontsize=8, color=color)
