"""Nothing is measured before both sides give the same scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bireme.errors import VerifyError
from wire import decode

__all__ = ["require_equal"]


def require_equal(
    name: str, answers: Sequence[bytes], other: str, answers_of_other: Sequence[bytes], tolerance: float
) -> float:
    """Compare two models' answers to the same requests.

    Args:
        name: the one model.
        answers: its serialised answers.
        other: the other model.
        answers_of_other: its answers, in the same order.
        tolerance: largest allowed |difference| of two scores.

    Returns:
        The largest difference.

    Raises:
        VerifyError: a larger difference, or other tasks or numbers of scores.
    """
    largest = 0.0
    for number, (first, second) in enumerate(zip(answers, answers_of_other, strict=True)):
        ours, theirs = decode(first), decode(second)
        where = f"request {number}"
        shapes = [{task: array.shape for task, array in scores.items()} for scores in (ours, theirs)]
        if shapes[0] != shapes[1]:
            raise VerifyError(where, f"'{name}' gives {shapes[0]}, '{other}' gives {shapes[1]}", "same spec?")
        for task in ours:
            difference = np.abs(ours[task].astype(np.float64) - theirs[task])
            worst = float(np.where(np.isfinite(difference), difference, np.inf).max())
            largest = max(largest, worst)
            if worst > tolerance:
                raise VerifyError(
                    f"{where}, task '{task}'",
                    f"scores of '{name}' and '{other}' differ by {worst:.3g} (tolerance {tolerance:g}),"
                    " so their speeds are not compared",
                    "both must come from the same SavedModel: build the repository again",
                )
    return largest
