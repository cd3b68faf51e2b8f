"""Memory of the instances as a picture: one bar a policy, and the share of the tables in huge pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw"]

_NAMES = {
    "auto": "auto: what the host\ngives best",
    "copy": "copy: one copy\nin memory",
    "off": "off: only the rows\nthat were asked for",
}


def draw(
    results: Sequence[Mapping[str, Any]], tables: int, limit: float, machine: Mapping[str, Any]
) -> Figure:
    """Sum of the instances' PSS, and their huge pages.

    Args:
        results: one a policy, with its `summary`.
        tables: bytes.
        limit: what the sum over the tables must stay below.
        machine: as `machine.describe` gives it.
    """
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    places = range(len(results))
    sums = [one["summary"] for one in results]
    table = [s["table_share_bytes"] / 1e6 for s in sums]
    own = [s["anonymous_bytes"] / 1e6 for s in sums]
    rest = [(s["share_bytes"] - s["table_share_bytes"] - s["anonymous_bytes"]) / 1e6 for s in sums]
    bottom = [0.0] * len(sums)
    for values, label, color in (
        (table, "tables", "#2166ac"),
        (own, "the processes' own memory", "#e08214"),
        (rest, "libraries and other files", "#bbbbbb"),
    ):
        left.bar(places, values, bottom=bottom, label=label, color=color, width=0.55)
        bottom = [b + v for b, v in zip(bottom, values, strict=True)]
    for place, s in zip(places, sums, strict=True):
        left.annotate(
            f"{s['share_over_tables']:.3f} × tables", (place, bottom[place]), ha="center", va="bottom"
        )
    left.axhline(limit * tables / 1e6, color="#b2182b", ls="--", lw=1, label=f"limit: {limit:g} × tables")
    left.set_ylabel("sum of PSS over the instances, MB")
    left.set_ylim(0, 1.3 * limit * tables / 1e6)
    left.legend(frameon=False, ncols=2, fontsize=8, loc="upper left")
    left.set_title("memory", fontsize=11)
    shares = [100 * s["least_huge_share"] for s in sums]
    right.bar(places, shares, color="#1b7837", width=0.55)
    for place, share in zip(places, shares, strict=True):
        right.annotate(f"{share:.0f} %", (place, share), ha="center", va="bottom")
    right.set_ylim(0, 115)
    right.set_ylabel("tables in huge pages, %")
    right.set_title("huge pages (of the instance that has fewest)", fontsize=11)
    for panel in (left, right):
        panel.set_xticks(places, [_NAMES[one["policy"]] for one in results], fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    instances = len(results[0]["instances"])
    figure.supxlabel(
        f"{instances} instances of preprocess under load, {tables / 1e9:.2f} GB of tables · "
        f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}",
        fontsize=9,
    )
    return figure
