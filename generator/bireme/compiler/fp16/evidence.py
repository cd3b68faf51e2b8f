"""What precision is decided on: sample requests as the dense network sees them, in two halves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bireme.errors import SpecError
from bireme.requests import Request, count_candidates, read_requests
from bireme.synthetic import make_requests
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features

__all__ = ["Evidence", "Sample", "evidence_requests", "make_evidence"]

Array = np.ndarray[Any, Any]

#: Rows (user–candidate pairs) that are looked at; more cost time at every trial.
_MOST_ROWS = 8_000
#: With fewer rows of the user's than this, made-up requests join them.
_FEWEST_ROWS = 400
_MADE_UP_ROWS = 2_000
_MADE_UP_CANDIDATES = 100


@dataclass(frozen=True)
class Sample:
    """One request behind the CPU side.

    Args:
        feeds: the network's inputs, FP32, no padding: `items` [1, N, item_width] and, unless that is 0 wide,
            `user` [1, user_width].
        labels: task → [N], for the tasks whose clicks are known.
    """

    feeds: Mapping[str, Array]
    labels: Mapping[str, Array]


@dataclass(frozen=True)
class Evidence:
    """Two halves that share no request.

    Args:
        search: what the search looks at.
        held_out: what confirms it.
        recorded: how many requests are the user's.
        made_up: how many are not.
    """

    search: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    recorded: int
    made_up: int


def evidence_requests(
    path: Path | None, plan: Plan, words: Mapping[str, Sequence[bytes]]
) -> tuple[list[Request], int]:
    """Requests to decide on: the user's, as many as there is time for, and made-up ones where those are few.

    Returns:
        The requests, and how many of them are the user's; those come first.
    """
    recorded: list[Request] = []
    rows = 0
    for request in (
        read_requests(path, [f.name for f in plan.features if f.side == "user"]) if path is not None else []
    ):
        if recorded and rows + count_candidates(request) > _MOST_ROWS:
            break
        recorded.append(request)
        rows += count_candidates(request)
    if rows >= _FEWEST_ROWS and len(recorded) > 1:
        return recorded, len(recorded)
    count = min(_MADE_UP_CANDIDATES, plan.buckets[-1])
    if plan.listwise:
        count = max((n for n in plan.buckets if n <= count), default=plan.buckets[0])
    made = make_requests(plan, words, [count] * max(4, _MADE_UP_ROWS // count), seed=3)
    return [*recorded, *made], len(recorded)


def make_evidence(
    path: Path | None,
    requests: Sequence[Request],
    halves: Sequence[Features],
    tasks: Sequence[str],
    recorded: int,
) -> Evidence:
    """Pair what the network gets with what was clicked, and deal the requests out to two halves.

    Args:
        path: where recorded requests come from, for messages.
        requests: as `evidence_requests` gives them.
        halves: what the CPU side makes of each, FP32.
        tasks: outputs of the network.
        recorded: how many of the requests are the user's.

    Raises:
        SpecError: labels do not fit their request.
    """
    samples = []
    for number, (request, half) in enumerate(zip(requests, halves, strict=True), start=1):
        count = half.candidates
        feeds = {"items": half.items[:, :count].astype(np.float32)}
        if half.user.shape[-1]:
            feeds["user"] = half.user.astype(np.float32)
        samples.append(Sample(feeds, _labels(f"{path}: request {number}", request, tasks, count)))
    return Evidence(tuple(samples[::2]), tuple(samples[1::2]), recorded, len(samples) - recorded)


def _labels(where: str, request: Request, tasks: Sequence[str], count: int) -> dict[str, Array]:
    given = request.get("labels", {})
    hint = f'write "labels": {{"{tasks[0]}": [0, 1, …]}} with one number a candidate'
    if not isinstance(given, Mapping):
        raise SpecError(where, "has labels that are no mapping from tasks", hint)
    result = {}
    for task, values in given.items():
        if task not in tasks:
            raise SpecError(
                where, f"has labels for '{task}', which is not a task", f"tasks: {', '.join(tasks)}"
            )
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise SpecError(where, f"has labels for '{task}' that are no numbers", hint) from None
        if array.shape != (count,):
            raise SpecError(where, f"has {array.size} labels for '{task}' and {count} candidates", hint)
        result[task] = array
    return result
