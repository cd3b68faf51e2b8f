"""Ratios as horizontal bars with their range, one group a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ratios import Spread

__all__ = ["Bars", "draw"]

_COLORS = ("#2166ac", "#e08214", "#1b7837", "#b2182b", "#762a83")


@dataclass(frozen=True)
class Bars:
    """One group: its name, and name → ratio."""

    case: str
    ratios: Mapping[str, Spread]


def draw(groups: Sequence[Bars], machine: Mapping[str, Any], unit: str) -> Figure:
    """All groups below each other.

    Args:
        groups: they may have different bars.
        machine: as `machine.describe` gives it.
        unit: what 1 stands for.
    """
    names = list(dict.fromkeys(name for group in groups for name in group.ratios))
    colors = dict(zip(names, _COLORS, strict=False))
    lines = sum(len(group.ratios) + 1 for group in groups)
    figure = Figure(figsize=(9, 1.4 + 0.28 * lines), layout="constrained")
    panel = figure.subplots()
    place, ticks = 0.0, []
    values = [value for group in groups for value in group.ratios.values()]
    most = max(value.highest for value in values)
    for group in groups:
        ticks.append((place + (len(group.ratios) - 1) / 2, group.case))
        for name, value in group.ratios.items():
            first = name not in panel.get_legend_handles_labels()[1]
            panel.barh(place, value.median, color=colors[name], height=0.8, label=name if first else None)
            panel.plot([value.lowest, value.highest], [place, place], color="black", lw=1.5)
            panel.annotate(
                f"{value.median:.2f}",
                (value.highest, place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
            place += 1
        place += 1
    panel.axvline(1, color="black", lw=1)
    panel.set_xscale("log")
    panel.set_xlim(min(0.5, *(0.8 * value.lowest for value in values)), 1.5 * most)
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(place - 0.5, -1)
    panel.set_yticks([at for at, _ in ticks], [case for _, case in ticks], fontsize=9)
    panel.tick_params(axis="y", length=0)
    panel.set_xlabel(f"CPU time, {unit}")
    panel.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(names))
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(
        f"median and range of the rounds · {machine['processor']}, {machine['cores']} cores", fontsize=9
    )
    return figure
