"""The slopes as a picture: cost over N, and what one more candidate costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ratios import Spread

__all__ = ["draw"]

_COLORS = ("#2166ac", "#1b7837", "#e08214", "#b2182b")


def draw(
    counts: Sequence[int],
    costs: Mapping[str, Sequence[Spread]],
    slopes: Mapping[str, Spread],
    machine: Mapping[str, Any],
) -> Figure:
    """Costs and slopes.

    Args:
        counts: the numbers of candidates.
        costs: method → µs for each of them.
        slopes: method → ns a candidate.
        machine: as `machine.describe` gives it.
    """
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for (name, spreads), color in zip(costs.items(), _COLORS, strict=True):
        left.plot(counts, [cost.median for cost in spreads], "o-", color=color, ms=4, label=name)
        low, high = [cost.lowest for cost in spreads], [cost.highest for cost in spreads]
        left.fill_between(counts, low, high, color=color, alpha=0.2, lw=0)
    left.set_xlabel("candidates N")
    left.set_ylabel("CPU time of one request, µs")
    left.set_ylim(bottom=0)
    left.set_xlim(left=0)
    left.set_title("cost of one request", fontsize=11)
    left.legend(frameon=False)
    for line, (slope, color) in enumerate(zip(slopes.values(), _COLORS, strict=True)):
        right.barh(line, slope.median, color=color, height=0.5)
        right.plot([slope.lowest, slope.highest], [line, line], color="black", lw=2)
        right.annotate(
            f"{slope.median:,.0f} ns",
            (slope.highest, line),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    right.set_xlim(0, 1.3 * max(slope.highest for slope in slopes.values()))
    right.set_yticks(range(len(slopes)), list(slopes))
    right.tick_params(axis="y", length=0)
    right.set_ylim(len(slopes) - 0.5, -0.5)
    right.set_xlabel("CPU time of one more candidate, ns")
    right.set_title("slope", fontsize=11)
    for panel in (left, right):
        panel.grid(axis="x" if panel is right else "both", alpha=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(
        f"median and range of the repeats · {machine['processor']}, {machine['cores']} cores", fontsize=9
    )
    return figure
