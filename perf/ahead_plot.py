"""Picture of user_ahead.py: predicted against measured, and what a request takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw"]

_PREDICTED, _MEASURED, _USER = "#8a8a8a", "#1b7837", "#2166ac"
_PLACES = {
    "in_process": "without a server",
    "served": "served",
    "served_cached": "served, state from the cache",
}
_KINDS = {
    "one_shot": ("one-shot request", _PREDICTED),
    "slice": ("slice", _MEASURED),
    "user": ("user, once", _USER),
    "user_cached": ("user, from the cache", _USER),
}


def draw(
    results: Sequence[Mapping[str, Any]], machine: Mapping[str, Any], settings: Mapping[str, Any]
) -> Figure:
    """Two panels a model: shares of CPU time saved, and median latencies.

    Args:
        results: of `user_ahead.measure`.
        machine: as `machine.describe` gives it.
        settings: slices, candidates, rounds and users a round.
    """
    figure = Figure(figsize=(11, 0.9 + 2.3 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), 2, squeeze=False)
    for row, result in zip(panels, results, strict=True):
        _shares(row[0], result)
        _latencies(row[1], result)
    figure.suptitle(
        f"User side ahead of time: {settings['slices']} slices of {settings['candidates']} candidates",
        fontsize=13,
        x=0.01,
        ha="left",
    )
    figure.supxlabel(
        f"median and middle half of {settings['rounds']} rounds of {settings['users']} users, taking turns ·"
        f" {machine['processor']}, {machine['cores']} cores, shared",
        fontsize=9,
    )
    return figure


def _shares(panel: Any, result: Mapping[str, Any]) -> None:
    for line, place in enumerate(_PLACES):
        share = result["shares"][place]
        measured = share["measured"]
        panel.barh(line, 100 * measured["median"], height=0.5, color=_MEASURED, alpha=0.75)
        panel.plot(
            [100 * measured["lower_quartile"], 100 * measured["upper_quartile"]],
            [line, line],
            color="black",
            lw=1.5,
        )
        text = f"{measured['median']:.1%}"
        if "predicted" in share:
            predicted = 100 * share["predicted"]
            panel.plot([predicted, predicted], [line - 0.36, line + 0.36], color="#b2182b", lw=2.5)
            text += f"  (predicted {share['predicted']:.1%})"
        end = max(100 * measured["upper_quartile"], 100 * share.get("predicted", 0.0), 0.0)
        panel.annotate(text, (end, line), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
    panel.axvline(0, color="black", lw=1)
    panel.set_yticks(range(len(_PLACES)), list(_PLACES.values()))
    panel.set_ylim(len(_PLACES) - 0.5, -0.5)
    low, high = panel.get_xlim()
    panel.set_xlim(low, high + 0.75 * (high - low))
    panel.set_xlabel("% of the one-shot path's CPU time saved · red: predicted", fontsize=9)
    widths = f"{result['user_width']} columns of the user, {result['item_width']} of a candidate"
    title = f"{result['model']}: {widths}"
    panel.set_title(title, fontsize=11, loc="left")
    _plain(panel)


def _latencies(panel: Any, result: Mapping[str, Any]) -> None:
    times = result["latency_ms"]
    for line, (kind, (_, color)) in enumerate(_KINDS.items()):
        panel.barh(line, times[kind], height=0.5, color=color, alpha=0.75)
        panel.annotate(
            f"{times[kind]:.2f} ms", (times[kind], line), xytext=(6, 0), textcoords="offset points",
            va="center", fontsize=9,
        )  # fmt: skip
    panel.set_yticks(range(len(_KINDS)), [label for label, _ in _KINDS.values()])
    panel.set_ylim(len(_KINDS) - 0.5, -0.5)
    panel.set_xlim(0, 1.25 * max(times[kind] for kind in _KINDS))
    panel.set_xlabel("median latency of a request, one at a time, ms", fontsize=9)
    _plain(panel)


def _plain(panel: Any) -> None:
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)
