"""What the gates of precision and table storage decide on: sample requests as the dense network sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.attempts import taken
from bireme.errors import SpecError
from bireme.requests import Request, count_candidates, read_requests
from bireme.synthetic import make_requests
from bireme_runtime.plan import Plan

__all__ = ["Evidence", "Sample", "gather_evidence"]

Array = np.ndarray[Any, Any]

#: Rows (user–candidate pairs) that are looked at; more cost time at every trial.
_MOST_ROWS = 8_000
#: With fewer rows of the user's than this, made-up requests join them; with fewer labelled ones, labels say
#: too little.
_FEWEST_ROWS = 400
_MADE_UP_ROWS = 2_000
_MADE_UP_CANDIDATES = 100
#: What stands for clicks where there are none; see ranking.py.
TOP_LABELS = "the FP32 ranking's top tenth"


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
    """Sample requests, in two halves that share none, so that one can confirm what the other says.

    Args:
        requests: as they were sent.
        samples: the same behind the CPU side, with labels only where those are used: see `auc_of`.
        recorded: how many requests are the user's.
        made_up: how many are not.
        refused: how many of the user's the CPU side refuses; they are left out.
        auc_of: task → whose AUC is compared, in words.
    """

    requests: tuple[Request, ...]
    samples: tuple[Sample, ...]
    recorded: int
    made_up: int
    refused: int
    auc_of: Mapping[str, str]

    @property
    def search(self) -> tuple[Sample, ...]:
        """The half that a search looks at."""
        return self.samples[::2]

    @property
    def held_out(self) -> tuple[Sample, ...]:
        """The half that confirms it."""
        return self.samples[1::2]


def gather_evidence(
    path: Path | None, plan: Plan, words: Mapping[str, Sequence[bytes]], folder: Path, tasks: Sequence[str]
) -> Evidence:
    """What the gates of precision and of table storage look at.

    Args:
        path: the user's sample requests, or None.
        plan: the feature plan, FP32 tables and hand-over.
        words: vocabulary file → its keys.
        folder: where the plan's files lie.
        tasks: outputs of the network.

    Raises:
        SpecError: labels do not fit their request.
    """
    tried, recorded = _choose_requests(path, plan, words)
    samples, requests = [], []
    mine = 0
    numbers = {id(request): number for number, request in enumerate(tried, start=1)}
    for request, half in taken(plan, folder, tried):
        number, count = numbers[id(request)], half.candidates
        feeds = {"user": half.user.astype(np.float32), "items": half.items[:, :count].astype(np.float32)}
        samples.append(Sample(feeds, _labels(f"{path}: request {number}", request, tasks, count)))
        requests.append(request)
        mine += number <= recorded
    auc_of = {task: _unusable(samples, task) for task in tasks}
    used = tuple(
        Sample(sample.feeds, {task: x for task, x in sample.labels.items() if not auc_of[task]})
        for sample in samples
    )
    return Evidence(
        requests=tuple(requests),
        samples=used,
        recorded=mine,
        made_up=len(samples) - mine,
        refused=recorded - mine,
        auc_of={
            task: f"{TOP_LABELS} ({why})" if why else _labelled(used, task) for task, why in auc_of.items()
        },
    )


def _choose_requests(
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


def _unusable(samples: Sequence[Sample], task: str) -> str:
    """Why a task's labels are not used, or "": with few of them, every swap would be a large step."""
    labels = [sample.labels.get(task) for sample in samples]
    rows = sum(len(part) for part in labels if part is not None)
    if not rows:
        return "no sample has labels"
    if rows < _FEWEST_ROWS:
        return f"only {rows} rows of the samples have labels; {_FEWEST_ROWS} are needed"
    for half in (labels[::2], labels[1::2]):
        clicked = np.concatenate([np.zeros(0), *(part for part in half if part is not None)]) > 0
        if clicked.all() or not clicked.any():
            return "in one half of the samples all labels are alike"
    return ""


def _labelled(samples: Sequence[Sample], task: str) -> str:
    rows = sum(len(sample.labels[task]) for sample in samples if task in sample.labels)
    total = sum(sample.feeds["items"].shape[1] for sample in samples)
    return f"the samples' labels ({rows:,} of {total:,} rows)"


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
