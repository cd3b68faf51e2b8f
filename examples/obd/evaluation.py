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


def auc(click: npt.NDArray[Any], score: Floats, weight: npt.NDArray[Any] | None = None) -> float:
    """Chance that a random clicked row scores above a random other row; ties count one half.

    Args:
        click: 0 or 1 [rows].
        score: any monotone score [rows].
        weight: how often each row counts [rows]; once by default.

    Returns:
        In [0, 1]; NaN where there are only clicked or only other rows.
    """
    weight = np.ones(len(click)) if weight is None else weight.astype(np.float64)
    _, level = np.unique(score, return_inverse=True)
    clicked = np.bincount(level, weight * click)
    other = np.bincount(level, weight * (1 - click))
    below = np.cumsum(other) - other
    pairs = clicked.sum() * other.sum()
    return float((clicked * (below + other / 2)).sum() / pairs) if pairs else float("nan")


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
    # Levels instead of floats: sorting them again in each replicate is cheap, and ties stay ties.
    levels = {name: np.unique(score, return_inverse=True)[1] for name, score in scores.items()}
    draws = np.empty((replicates, len(names)))
    chance = np.full(len(click), 1 / len(click))
    for row in draws:
        weight = rng.multinomial(len(click), chance)
        row[:] = [auc(click, levels[name], weight) for name in names]
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
