"""Numbers of instances as a picture: a row for each case, a panel for each metric, a bar for each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from plot import BETTER, NEUTRAL, WORSE

__all__ = ["draw"]

_METRICS = {"throughput": "throughput", "p99": "99th percentile latency", "cpu": "CPU time a request"}


def draw(
    rows: Sequence[Mapping[str, Any]], machine: Mapping[str, Any], settings: Mapping[str, Any]
) -> Figure:
    """Ratios of all variants to their base.

    Args:
        rows: as `instances.summary` gives them.
        machine: as `machine.describe` gives it.
        settings: rounds and seconds.
    """
    cases = list(dict.fromkeys((row["candidates"], row["clients"]) for row in rows))
    bases = dict.fromkeys(row["base"] for row in rows)
    shown = [row for row in rows if row["variant"] != row["base"]]
    lines = max(sum((r["candidates"], r["clients"]) == case for r in shown) for case in cases)
    figure = Figure(figsize=(12, 1.2 + len(cases) * (0.6 + 0.26 * lines)), layout="constrained")
    panels = figure.subplots(len(cases), len(_METRICS), squeeze=False, sharex="col")
    for case, line in zip(cases, panels, strict=True):
        mine = [row for row in shown if (row["candidates"], row["clients"]) == case]
        for panel, (metric, title) in zip(line, _METRICS.items(), strict=True):
            for place, row in enumerate(mine):
                ratio = row["ratios"][metric]
                low, middle, high = ratio["lowest"], ratio["median"], ratio["highest"]
                color = BETTER if low > 1 else WORSE if high < 1 else NEUTRAL
                panel.plot([low, high], [place, place], color=color, lw=5, alpha=0.35)
                panel.plot(middle, place, "o", color=color, ms=5)
            panel.axvline(1, color="black", lw=1)
            panel.set_yticks(range(len(mine)), [row["variant"] for row in mine], fontsize=8)
            panel.invert_yaxis()
            panel.grid(axis="x", alpha=0.3)
            panel.spines[["top", "right", "left"]].set_visible(False)
            if case == cases[0]:
                panel.set_title(title, fontsize=11)
        line[0].set_ylabel(f"N = {case[0]}\n{case[1]} client{'s' if case[1] > 1 else ''}", fontsize=9)
    figure.suptitle(
        f"PREPROCESS+DNNxTHREADS against {' and '.join(bases)}; n: a DNN that costs nothing",
        fontsize=12,
        x=0.01,
        ha="left",
    )
    figure.supxlabel(
        f"times better (right of 1: better) · dot: median, bar: range of {settings['rounds']} rounds of"
        f" {settings['seconds']:g} s · {machine['processor']}, {machine['cores']} cores",
        fontsize=9,
    )
    return figure
