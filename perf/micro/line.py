"""The straight line through costs: what a request costs anyway, and what each further candidate adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Line", "fit"]


@dataclass(frozen=True)
class Line:
    """cost = fixed + slope · N, in the unit of the costs."""

    fixed: float
    slope: float


def fit(counts: Sequence[float], costs: Sequence[float]) -> Line:
    """Least squares.

    Args:
        counts: numbers of candidates, at least two different ones.
        costs: the cost of each.

    Raises:
        ValueError: fewer than two different counts, or not one cost each.
    """
    if len(counts) != len(costs) or len(set(counts)) < 2:
        raise ValueError("a line needs two different counts, and one cost for each")
    mean_count, mean_cost = sum(counts) / len(counts), sum(costs) / len(costs)
    covariance = sum((n - mean_count) * (c - mean_cost) for n, c in zip(counts, costs, strict=True))
    slope = covariance / sum((n - mean_count) ** 2 for n in counts)
    return Line(mean_cost - slope * mean_count, slope)
