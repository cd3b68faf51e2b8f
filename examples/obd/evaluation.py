"""AUC with a bootstrap interval, and the popularity baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "auc", "bootstrap", "popularity"]

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Interval:
    """An estimate and the range that holds 95 % of its bootstrap replicates."""

    value: float
    low: float
    high: float


def auc(click: npt.NDArray[Any], score: Floats) -> float:
    """Chance that a random clicked row scores above a random other row; ties count one half.

    Args:
        click: 0 or 1 [rows].
        score: any monotone score [rows].

    Returns:
        In [0, 1]; NaN where there are only clicked or only other rows.
    """
    levels, level = np.unique(score, return_inverse=True)
    return _auc_of_levels(click, level, len(levels), np.ones(len(click)))


def bootstrap(
    click: npt.NDArray[Any], scores: dict[str, Floats], replicates: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """AUC of several scores on the same rows, resampled together so that their differences may be compared.

    Args:
        click: 0 or 1 [rows].
        scores: name → score [rows].
        replicates: how many resamples.
        seed: of the resampling.

    Returns:
        Name → interval, and for every pair of names "a - b" → interval of the difference.
    """
    rng = np.random.default_rng(seed)
    names = list(scores)
    # The order of the scores is the same in every replicate, so they are sorted once.
    levels = {name: np.unique(score, return_inverse=True) for name, score in scores.items()}
    draws = np.empty((replicates, len(names)))
    chance = np.full(len(click), 1 / len(click))
    for row in draws:
        weight = rng.multinomial(len(click), chance)
        row[:] = [_auc_of_levels(click, level, len(values), weight) for values, level in levels.values()]
    point = np.array([auc(click, scores[name]) for name in names])
    out = {name: _interval(point[k], draws[:, k]) for k, name in enumerate(names)}
    for a in range(len(names)):
        for b in range(a + 1, len(names)):
            difference = _interval(point[a] - point[b], draws[:, a] - draws[:, b])
            out[f"{names[a]} - {names[b]}"] = difference
    return out


def popularity(
    train_items: npt.NDArray[Any],
    train_click: npt.NDArray[Any],
    items: npt.NDArray[Any],
    prior: float = 100.0,
) -> Floats:
    """Smoothed click rate of each item in training.

    Args:
        train_items: item ids [training rows].
        train_click: 0 or 1 [training rows].
        items: item ids to score [rows].
        prior: how many impressions at the overall click rate are added to every item's own.

    Returns:
        float64 [rows]; an item never shown gets the overall click rate.
    """
    overall = float(train_click.mean())
    names, index = np.unique(train_items.astype(str), return_inverse=True)
    shown = np.bincount(index, minlength=len(names))
    clicked = np.bincount(index, train_click, minlength=len(names))
    rate = dict(zip(names.tolist(), (clicked + prior * overall) / (shown + prior), strict=True))
    return np.array([rate.get(name, overall) for name in items])


def _interval(value: float, draws: Floats) -> Interval:
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return Interval(float(value), float(low), float(high))


def _auc_of_levels(
    click: npt.NDArray[Any], level: npt.NDArray[Any], levels: int, weight: npt.NDArray[Any]
) -> float:
    """AUC where row i counts `weight[i]` times and its score is the `level[i]`-th smallest of `levels`."""
    clicked = np.bincount(level, weight * click, minlength=levels)
    other = np.bincount(level, weight * (1 - click), minlength=levels)
    below = np.cumsum(other) - other
    pairs = clicked.sum() * other.sum()
    return float((clicked * (below + other / 2)).sum() / pairs) if pairs else float("nan")
