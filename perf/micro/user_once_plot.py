"""What user_once saves as a picture: times faster beside operations saved, one line a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from ratios import spread

__all__ = ["draw"]

_ROWS, _ONCE = "#b2b2b2", "#1b7837"


def draw(results: Mapping[str, Any], candidates: int, machine: Mapping[str, Any]) -> Figure:
    """Times and ratios.

    Args:
        results: network → what `user_once.compare` gives.
        candidates: N.
        machine: as `machine.describe` gives it.
    """
    figure = Figure(figsize=(11, 1.6 + 0.8 * len(results)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for line, result in enumerate(results.values()):
        times = [spread(values).median for values in result["milliseconds"].values()]
        for offset, value, color in zip((-0.19, 0.19), times, (_ROWS, _ONCE), strict=True):
            left.barh(line + offset, value, height=0.34, color=color)
            left.annotate(
                f"{value:.1f}",
                (value, line + offset),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        ratio, flops = result["ratio"], result["flops"]
        saved = flops["rowwise"] / flops["user_once"]
        right.plot([ratio["lowest"], ratio["highest"]], [line, line], color=_ONCE, lw=6, alpha=0.35)
        right.plot(ratio["median"], line, "o", color=_ONCE, ms=7, label="measured" if not line else None)
        right.plot(saved, line, "|", color="black", ms=16, mew=2, label="operations" if not line else None)
        right.annotate(
            f"{ratio['median']:.2f}",
            (ratio["median"], line),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color=_ONCE,
        )
    names = [f"{name}\n{result['network']}" for name, result in results.items()]
    left.set_yticks(range(len(results)), names, fontsize=9)
    left.set_ylim(len(results) - 0.5, -0.6)
    left.set_xlim(0, 1.12 * max(left.get_xlim()))
    left.set_title("CPU time, ms: row by row (grey), user once (green)", fontsize=11)
    right.axvline(1, color="black", lw=1)
    right.set_xlim(0.8, 1.05 * max(right.get_xlim()))
    right.set_title("times faster, and times fewer operations", fontsize=11)
    right.legend(frameon=False, loc="lower right")
    for panel in (left, right):
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", alpha=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(
        f"The dense network in ONNX Runtime on one thread, 1 user × {candidates} candidates",
        fontsize=13,
        x=0.01,
        ha="left",
    )
    figure.supxlabel(
        f"dot: median, bar: range of the rounds, both sides in turn · {machine['processor']}", fontsize=9
    )
    return figure
