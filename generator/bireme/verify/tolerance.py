"""How far served scores may be from the original's, and who says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.losses import Loss

__all__ = ["EXACT", "Tolerance", "choose_tolerances"]

#: What FP32 itself may do: sums in another order.
EXACT = 1e-5
_WORDS = {"storage": "the tables' storage", "precision": "FP16"}


@dataclass(frozen=True)
class Tolerance:
    """A limit for one task.

    Args:
        value: largest |served − original|.
        reason: where it comes from.
    """

    value: float
    reason: str


def choose_tolerances(
    given: float | None, losses: Sequence[Loss], expected: Sequence[Mapping[str, np.ndarray[Any, Any]]]
) -> dict[str, Tolerance]:
    """Task → its limit: the one given, else what FP32 may do and what the build allowed its roundings.

    Args:
        given: asked for by hand; None: not.
        losses: what the build rounds.
        expected: for each request the original's scores, task → [N].
    """
    return {task: _of_task(task, given, losses, expected) for task in expected[0]} if expected else {}


def _of_task(
    task: str,
    given: float | None,
    losses: Sequence[Loss],
    expected: Sequence[Mapping[str, np.ndarray[Any, Any]]],
) -> Tolerance:
    if given is not None:
        return Tolerance(given, "given by hand")
    mine = [loss for loss in losses if loss.task == task]
    if not mine:
        return Tolerance(EXACT, "the build rounds nothing")
    largest = max(float(np.abs(scores[task]).max(initial=0.0)) for scores in expected)
    value, parts = EXACT, [f"{EXACT:g}"]
    for loss in mine:
        value += loss.allowed * largest
        parts.append(
            f"{loss.allowed:.2g} of the largest score {largest:.3g} for {_WORDS[loss.source]}"
            f" (the build's samples: {loss.measured:.2g})"
        )
    return Tolerance(value, f"the build allows {' + '.join(parts)}")
