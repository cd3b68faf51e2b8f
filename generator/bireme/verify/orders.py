"""Sequences of requests, one at a time; each answer is compared with a reference and with earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

__all__ = ["GRAPH_TOLERANCE", "Ordered", "compare_orders"]

Array = np.ndarray[Any, Any]
Answers = Mapping[str, Array]
Key = TypeVar("Key", bound=Hashable)

GRAPH_TOLERANCE = 0.005
"""Of the largest value of an output: what FP16 may do (the default of the build's gate) where a graph
executes more rows than a plain run. Stale or foreign data is off by far more: 0.2 and 0.3 were measured."""

_SHOWN = 5


@dataclass
class Ordered:
    """What sequences on one model have shown.

    Args:
        model: its name.
        orders: name of each sequence → requests.
        compared: answers that were compared with the reference.
        bit_equal: how many of these were equal bit by bit.
        repeated: answers that had been given before, to the same request.
        changed: how many of these were not equal to the first, bit by bit.
        largest: largest difference from the reference, as a share of its largest value.
        failures: what is wrong, a sentence each; further ones of a kind are only counted.
        notes: what else to know.
    """

    model: str
    orders: dict[str, int] = field(default_factory=dict)
    compared: int = 0
    bit_equal: int = 0
    repeated: int = 0
    changed: int = 0
    largest: float = 0.0
    wrong: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: value for name, value in vars(self).items() if name != "model"}


def compare_orders(
    model: str,
    orders: Mapping[str, Sequence[Key]],
    ask: Callable[[Key], Answers],
    reference: Mapping[Key, Answers],
    allowed: Callable[[str, Array], float],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Ordered:
    """Send everything in order.

    Args:
        model: for the result.
        orders: name → what to send one after another.
        ask: sends one request, waits, returns output → array.
        reference: what must come back.
        allowed: (output, its reference) → largest difference.
        progress: called with (done, total).
    """
    result = Ordered(model)
    first: dict[Key, dict[str, Array]] = {}
    total = sum(map(len, orders.values()))
    for name, keys in orders.items():
        for number, key in enumerate(keys):
            before = f"after {keys[number - 1]}" if number else "as the first"
            place = f"{name}: {key}, {before}"
            result.orders[name] = result.orders.get(name, 0) + 1
            try:
                answers = ask(key)
            except Exception as error:  # whatever it is: this request was not answered
                _fail(result, f"{place}: {error}")
                continue
            _compare(result, place, answers, reference[key], allowed)
            _repeat(result, place, answers, first.setdefault(key, dict(answers)))
            progress(sum(result.orders.values()), total)
    if result.wrong > _SHOWN:
        result.failures.append(f"and {result.wrong - _SHOWN} more")
    return result


def _compare(
    result: Ordered,
    place: str,
    answers: Answers,
    wanted: Answers,
    allowed: Callable[[str, Array], float],
) -> None:
    result.compared += 1
    equal = True
    for output, expected in wanted.items():
        found = answers.get(output)
        if found is None or found.shape != expected.shape:
            shape = None if found is None else found.shape
            _fail(result, f"{place}: '{output}' has shape {shape} where {expected.shape} is right")
            return
        if found.tobytes() == expected.tobytes():
            continue
        equal = False
        difference = np.abs(found.astype(np.float64) - expected)
        # No number on one side only is a difference; on both it is how the network answers.
        difference = np.where(np.isnan(found) & np.isnan(expected), 0.0, difference)
        worst = float(np.where(np.isfinite(difference), difference, np.inf).max(initial=0.0))
        scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)) or 1.0
        result.largest = max(result.largest, worst / scale)
        if worst > allowed(output, expected):
            _fail(
                result,
                f"{place}: '{output}' is off by {worst:.3g} ({worst / scale:.2g} of the largest value)",
            )
            return
    result.bit_equal += equal


def _repeat(result: Ordered, place: str, answers: Answers, first: dict[str, Array]) -> None:
    """The same request, alone on the server, must get the same bits whatever came before it."""
    if any(answers[output] is first[output] for output in first):
        return  # the first time
    result.repeated += 1
    if any(answers[output].tobytes() != first[output].tobytes() for output in first):
        result.changed += 1
        _fail(result, f"{place}: another answer than the first time")


def _fail(result: Ordered, text: str) -> None:
    result.wrong += 1
    if result.wrong <= _SHOWN:
        result.failures.append(text)
