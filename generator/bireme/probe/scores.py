"""Whether an answer can be believed: complete, finite, and the recorded one where one is recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Golden", "find_fault"]


@dataclass(frozen=True)
class Golden:
    """The original model's scores of a request.

    Args:
        scores: task → one score a candidate.
        tolerance: task → largest |served − original|.
    """

    scores: Mapping[str, Sequence[float]]
    tolerance: Mapping[str, float]


def find_fault(task: str, scores: Sequence[float], count: int, golden: Golden | None) -> str | None:
    """What is wrong with a task's scores, as the end of a sentence about the model; None: nothing.

    Args:
        task: name of the output.
        scores: as served.
        count: candidates of the request; 0: not known.
        golden: what they should be; None: only their number and finiteness count.
    """
    if count and len(scores) != count:
        return f"gives {len(scores)} scores of '{task}' for {count} candidates"
    odd = [index for index, score in enumerate(scores) if not math.isfinite(score)]
    if odd:
        which = f"candidate {odd[0]}" + (f" and {len(odd) - 1} more" if len(odd) > 1 else "")
        return f"gives scores of '{task}' that are not finite ({scores[odd[0]]} for {which})"
    if golden is None or task not in golden.scores:
        return None
    expected = golden.scores[task]
    if len(expected) != len(scores):
        return f"gives {len(scores)} scores of '{task}' where {len(expected)} are recorded"
    worst = max(range(len(scores)), key=lambda i: abs(scores[i] - expected[i]), default=0)
    if scores and abs(scores[worst] - expected[worst]) > golden.tolerance[task]:
        return (
            f"gives other scores of '{task}' than are recorded: {scores[worst]:.7g} instead of"
            f" {expected[worst]:.7g} for candidate {worst} (allowed: ±{golden.tolerance[task]:g})"
        )
    return None
