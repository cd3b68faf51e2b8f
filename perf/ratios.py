"""Numbers of several rounds → a ratio with its spread. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Spread", "paired", "percentile", "spread"]


@dataclass(frozen=True)
class Spread:
    """What several rounds gave: their median, and how far they lie apart."""

    median: float
    lowest: float
    highest: float


def spread(values: Sequence[float]) -> Spread:
    """Median, minimum and maximum.

    Raises:
        ValueError: no value.
    """
    if not values:
        raise ValueError("a spread needs at least one value")
    return Spread(median(values), min(values), max(values))


def paired(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of each round, so that whatever slows down a whole round cancels out.

    Args:
        above: one positive value a round.
        below: one positive value a round, measured in the same rounds.

    Raises:
        ValueError: different numbers of rounds, or a value that is not positive.
    """
    if len(above) != len(below):
        raise ValueError(f"{len(above)} rounds cannot be paired with {len(below)}")
    if min([*above, *below], default=1.0) <= 0:
        raise ValueError("a ratio needs positive values")
    return [first / second for first, second in zip(above, below, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed.

    Args:
        values: at least one.
        share: above 0, up to 1.

    Raises:
        ValueError: no value, or no such share.
    """
    if not values or not 0 < share <= 1:
        raise ValueError("a percentile needs values, and a share above 0 and up to 1")
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1]
