"""A comparison as a picture: one panel a metric, one line a case, the spread of the rounds as a bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from comparison import METRICS, Case

__all__ = ["BETTER", "NEUTRAL", "WORSE", "draw"]

BETTER, NEUTRAL, WORSE = "#1b7837", "#8a6d00", "#b2182b"
_TITLES = {
    "throughput": "throughput",
    "p50": "median latency",
    "p99": "99th percentile latency",
    "cpu": "CPU time a request",
}


def draw(
    cases: Sequence[Case],
    machine: Mapping[str, Any],
    rounds: int,
    seconds: float,
    title: str = "Against the whole SavedModel in one Python model",
    count: str = "N",
) -> Figure:
    """Ratios of all cases.

    Args:
        cases: at least one.
        machine: as `machine.describe` gives it.
        rounds: how many rounds each case had.
        seconds: how long each model was driven in a round.
        title: of the picture.
        count: what a case's candidates are called.
    """
    lines = [(case, model, against) for case in cases for against in case.baselines for model in case.ours]
    figure = Figure(figsize=(11, 1.9 + 0.5 * len(lines)), layout="constrained")
    panels = figure.subplots(1, len(METRICS), sharey=True, squeeze=False)[0]
    for panel, metric in zip(panels, METRICS, strict=True):
        ratios = [case.ratio(metric, against, model) for case, model, against in lines]
        for line, ratio in enumerate(ratios):
            color = BETTER if ratio.lowest > 1 else WORSE if ratio.highest < 1 else NEUTRAL
            panel.plot(
                [ratio.lowest, ratio.highest],
                [line, line],
                color=color,
                lw=6,
                alpha=0.35,
                solid_capstyle="butt",
            )
            panel.plot(ratio.median, line, "o", color=color, ms=7)
            panel.annotate(
                f"{ratio.median:.2f}",
                (ratio.median, line),
                xytext=(0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=color,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
        panel.axvline(1, color="black", lw=1)
        ends = [end for ratio in ratios for end in (ratio.lowest, ratio.highest)]
        panel.set_xlim(min(0.5, 0.9 * min(ends)), max(2.0, 1.08 * max(ends)))
        panel.set_title(_TITLES[metric], fontsize=11)
        panel.grid(axis="x", alpha=0.3)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
    panels[0].set_yticks(
        range(len(lines)),
        [
            f"{model.removeprefix(f'{case.ensemble}_')}, {count} = {case.candidates}, {case.load}"
            + ("" if against == case.baseline else f", against {against.removeprefix(f'{case.ensemble}_')}")
            for case, model, against in lines
        ],
    )
    panels[0].set_ylim(len(lines) - 0.5, -0.7)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    figure.supxlabel(
        "times better (right of 1: better than it) · dot: median, bar: range of"
        f" {rounds} rounds of {seconds:g} s · {machine['processor']}, {machine['cores']} cores",
        fontsize=9,
    )
    return figure
