"""Which model of an ensemble is at fault: by an error's words, by counters, by whose output it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Counts", "Step", "last_reached", "named_in", "producer", "standing_still", "steps_of", "sum_up"]


@dataclass(frozen=True)
class Counts:
    """Requests that a model has answered since it was loaded, well and with an error."""

    good: int = 0
    bad: int = 0


@dataclass(frozen=True)
class Step:
    """A step of an ensemble: its model, and the ensemble's tensors that it takes and gives."""

    model: str
    takes: frozenset[str]
    gives: frozenset[str]


def sum_up(counts: dict[str, Counts], model: str, good: int, bad: int) -> None:
    """Add one version's counts to its model's."""
    known = counts.get(model, Counts())
    counts[model] = Counts(known.good + good, known.bad + bad)


def steps_of(config: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps of an ensemble; none for any other model."""
    return tuple(
        Step(
            step["model_name"],
            frozenset(step.get("input_map", {}).values()),
            frozenset(step.get("output_map", {}).values()),
        )
        for step in config.get("ensemble_scheduling", {}).get("step", ())
    )


def producer(steps: Sequence[Step], tensor: str) -> str | None:
    """The model that gives a tensor of the ensemble."""
    return next((step.model for step in steps if tensor in step.gives), None)


def named_in(message: str, steps: Sequence[Step]) -> str | None:
    """The step that an error of Triton's names, by its own name or one of its instances' (`ctr_dnn_0_0`)."""
    # Longest first: 'ctr_dnn_user' contains 'ctr_dnn'.
    for model in sorted({step.model for step in steps}, key=len, reverse=True):
        if re.search(rf"(?<![\w.-]){re.escape(model)}(_\d+_\w+)?(?![\w.-]*\w)", message):
            return model
    return None


def last_reached(
    steps: Sequence[Step], before: Mapping[str, Counts], after: Mapping[str, Counts]
) -> str | None:
    """The step that the failed request got to and not beyond; None: other requests blur it.

    Triton counts a Python model's error as an answer of the model's, so that it is told by what did not
    follow.

    Args:
        steps: of the ensemble.
        before: model → its counts before the request.
        after: the same after it.
    """
    grown = {s.model: _grown(before, after, s.model) for s in steps}
    if any(count > 1 for count in grown.values()):
        return None
    reached = [step for step in steps if grown[step.model]]
    taken = {tensor for step in reached for tensor in step.takes}
    ends = [step.model for step in reached if not step.gives & taken]
    return ends[0] if len(ends) == 1 else None


def _grown(before: Mapping[str, Counts], after: Mapping[str, Counts], model: str) -> int:
    old, new = before.get(model, Counts()), after.get(model, Counts())
    return new.good + new.bad - old.good - old.bad


def standing_still(
    steps: Sequence[Step], before: Mapping[str, Counts], after: Mapping[str, Counts]
) -> str | None:
    """The step that has answered nothing in between although whatever it waits for was there; None: none.

    Args:
        steps: of the ensemble.
        before: model → its counts before the one in question.
        after: the same when the deadline had passed.
    """
    idle = {step.model for step in steps if not _grown(before, after, step.model)}
    awaited = {tensor for step in steps if step.model in idle for tensor in step.gives}
    return next((step.model for step in steps if step.model in idle and not step.takes & awaited), None)
