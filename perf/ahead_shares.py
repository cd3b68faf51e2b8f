"""What the user side ahead of time was predicted to save, and what it saved. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from ratios import paired, percentile

__all__ = ["SLICES", "shares", "table"]

SLICES = 10

Rounds = Mapping[str, Sequence[float]]


def shares(
    report_ms: Mapping[str, Mapping[str, float]], in_process: Rounds, served: Rounds
) -> dict[str, Any]:
    """Shares of the one-shot path's CPU time that the other way does without.

    The report knows the models' own work. Served, every request costs something on top (wire, Triton, the hop
    between two models): what a one-shot request costs served less what it costs in process. Taking that to be
    the same for every request, the report's numbers predict the served share, where the user's own request is
    one more. A slice has fewer inputs, so this predicts too little where the user has many.

    Args:
        report_ms: part → "transforms", "dense" → CPU milliseconds of one request, from the build report.
        in_process: way → CPU milliseconds a user of each round.
        served: likewise.
    """
    one_shot, user, piece = (sum(report_ms[part].values()) for part in ("one_shot", "user", "slice"))
    on_top = (median(served["one_shot"]) - median(in_process["one_shot"])) / SLICES

    def predict(extra: float) -> float:
        return 1 - (user + extra + SLICES * (piece + extra)) / (SLICES * (one_shot + extra))

    def saved(rounds: Rounds, way: str) -> dict[str, float]:
        found = [1 - ratio for ratio in paired(rounds[way], rounds["one_shot"])]
        # The middle half: a round is short, and on a shared machine one of many is far off.
        return {
            "median": median(found),
            "lower_quartile": percentile(found, 0.25),
            "upper_quartile": percentile(found, 0.75),
        }

    return {
        "on_top_ms": on_top,
        "in_process": {"predicted": predict(0.0), "measured": saved(in_process, "ahead")},
        "served": {"predicted": predict(on_top), "measured": saved(served, "ahead")},
        "served_cached": {"measured": saved(served, "cached")},
    }


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Predicted against measured, a line for each model and place."""
    found = Table(
        title="share of the one-shot path's CPU time that the user side ahead saves", title_justify="left"
    )
    for column in ("model", "where", "predicted", "measured", "middle half", "ms a user", "one-shot"):
        found.add_column(column, justify="left" if column in ("model", "where") else "right")
    for result in results:
        for where, rounds, way in (
            ("in_process", "in_process_ms", "ahead"),
            ("served", "served_ms", "ahead"),
            ("served_cached", "served_ms", "cached"),
        ):
            share = result["shares"][where]
            measured = share["measured"]
            found.add_row(
                result["model"],
                where.replace("_", " "),
                f"{share['predicted']:.1%}" if "predicted" in share else "",
                f"{measured['median']:.1%}",
                f"{measured['lower_quartile']:.1%} to {measured['upper_quartile']:.1%}",
                f"{median(result[rounds][way]):.2f}",
                f"{median(result[rounds]['one_shot']):.2f}",
            )
        found.add_section()
    return found
