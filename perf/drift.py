"""Does a quantity grow with time? A line through its later samples, and how sure its slope is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

__all__ = ["Drift", "drift_of"]

_BLOCKS = 12
# Student's t for a two-sided 95 % with _BLOCKS - 2 degrees of freedom.
_T = 2.228


@dataclass(frozen=True)
class Drift:
    """Growth in units a second: the slope, and the bounds that it lies between with 95 % confidence."""

    slope: float
    lowest: float
    highest: float


def drift_of(times: Sequence[float], values: Sequence[float], skipped: float = 0.2) -> Drift:
    """Slope of `values` over `times` without the first part, in which a process warms up.

    Neighbouring samples are alike, so that each would count for less than one: blocks of samples, by their
    means, count instead.

    Args:
        times: ascending, seconds.
        values: one for each.
        skipped: share of the time that does not count.

    Raises:
        ValueError: fewer than two samples a block.
    """
    start = times[0] + skipped * (times[-1] - times[0]) if times else 0.0
    kept = [(time, value) for time, value in zip(times, values, strict=True) if time >= start]
    if len(kept) < 2 * _BLOCKS:
        raise ValueError(
            f"{len(kept)} samples are too few to tell a slope: at least {2 * _BLOCKS} are needed"
        )
    edges = [round(block * len(kept) / _BLOCKS) for block in range(_BLOCKS + 1)]
    blocks = [kept[first:last] for first, last in pairwise(edges)]
    x = [fmean(time for time, _ in block) for block in blocks]
    y = [fmean(value for _, value in block) for block in blocks]
    mean_x, mean_y = fmean(x), fmean(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    bound = _T * math.sqrt(rest / (_BLOCKS - 2) / spread)
    return Drift(slope, slope - bound, slope + bound)
