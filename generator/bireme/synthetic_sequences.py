"""Made-up sequences that belong together: equal lengths, padding in the same places, no row empty in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bireme_runtime.plan import Embed, Feature, Mask, Plan
from bireme_runtime.text_steps import features_behind

__all__ = ["arrange", "leaders", "must_hold_elements", "parallel"]

Draw = Callable[[Feature], Any]


def leaders(plan: Plan) -> dict[str, str]:
    """Feature → the first one whose sequences must be as long as its own (ids, their mask, their weights)."""
    leader = {feature.name: feature.name for feature in plan.features}
    for step in _embeds(plan):
        names = _features_of(plan, step)
        heads = {leader[name] for name in names}
        first = next(name for name in leader if name in heads)
        leader = {name: first if head in heads else head for name, head in leader.items()}
    return leader


def parallel(plan: Plan, leader: dict[str, str]) -> dict[str, str]:
    """`leader`, but sequences of one side that are filled up to one length are as long as each other, too.

    What the network puts together element by element (ids and their times) has to be, and no step tells; the
    original refuses other lengths, or repeats a sequence of one element for all of the other.
    """
    first: dict[tuple[str, int], str] = {}
    merged = dict(leader)
    for feature in plan.features:
        if feature.length is not None and feature.length > 0 and feature.padding is not None:
            head = first.setdefault((feature.side, feature.length), merged[feature.name])
            old = merged[feature.name]
            merged = {name: head if other == old else other for name, other in merged.items()}
    return merged


def must_hold_elements(plan: Plan) -> dict[str, str]:
    """Feature → "last" or "all": which rows of a request the original needs an element in."""
    needed: dict[str, str] = {}
    for step in _embeds(plan):
        if step.present:
            for name in _features_of(plan, step):
                needed[name] = "all" if "all" in (step.present, needed.get(name)) else "last"
    return needed


def arrange(plan: Plan, request: dict[str, dict[str, Any]], draw: Draw, rng: np.random.Generator) -> None:
    """Pad some rows of an item's sequences, and see that there are elements where the original needs one.

    Args:
        plan: the feature plan.
        request: drawn values; changed in place. Sequences of features with one leader have one length.
        draw: another value of a feature.
        rng: for the lengths.
    """
    leader, needed = leaders(plan), must_hold_elements(plan)
    sequences = [feature for feature in plan.features if feature.length is not None]
    for head in dict.fromkeys(leader[feature.name] for feature in sequences):
        members = [feature for feature in sequences if leader[feature.name] == head]
        padded = [feature for feature in members if feature.padding is not None]
        need = next((needed[feature.name] for feature in members if feature.name in needed), "")
        if not padded and not need:
            continue
        rows = {feature.name: _rows(request, feature) for feature in members}
        count = len(rows[head])
        for row in range(count):
            mine = {name: values[row] for name, values in rows.items()}
            length = len(mine[head])
            if padded and members[0].side == "item":
                _pad(padded, mine, range(int(rng.integers(0, length + 1)), length))
            _pad(padded, mine, [i for i in range(length) if any(_absent(f, mine[f.name][i]) for f in padded)])
            if need == "all" or (need == "last" and row == count - 1):
                _hold_one(plan, members, mine, draw)


def _embeds(plan: Plan) -> Iterator[Embed]:
    return (step for step in plan.steps if isinstance(step, Embed))


def _features_of(plan: Plan, step: Embed) -> list[str]:
    """The features of an embedding's ids, masks and weights."""
    sources = [step.ids, *([step.weights] if step.weights is not None else [])]
    sources += [mask.of for mask in _masks(step)]
    return [name for source in sources for name in features_behind(plan.steps, source)]


def _masks(step: Embed) -> Iterator[Mask]:
    mask = step.mask
    while mask is not None:
        yield mask
        mask = mask.also


def _rows(request: dict[str, dict[str, Any]], feature: Feature) -> list[list[Any]]:
    if feature.side == "item":
        rows: list[list[Any]] = request["items"][feature.name]
        return rows
    return [request["user"][feature.name]]


def _pad(padded: list[Feature], row: dict[str, list[Any]], places: Any) -> None:
    for feature in padded:
        for place in places:
            row[feature.name][place] = _padding(feature)


def _padding(feature: Feature) -> Any:
    return feature.padding.encode() if isinstance(feature.padding, str) else feature.padding


def _absent(feature: Feature, value: Any) -> bool:
    return bool(value == _padding(feature))


def _hold_one(plan: Plan, members: list[Feature], row: dict[str, list[Any]], draw: Draw) -> None:
    """Put an element that counts into a row that has none."""
    tests = {feature.name: _tests(plan, feature) for feature in members}
    length = len(row[members[0].name])

    def counts(place: int) -> bool:
        return all(test(row[name][place]) for name, mine in tests.items() for test in mine)

    tries = 0
    while length and not any(counts(place) for place in range(length)) and tries < 100:
        for feature in members:
            row[feature.name][0] = draw(feature)
        tries += 1


def _tests(plan: Plan, feature: Feature) -> list[Callable[[Any], bool]]:
    """What an element has to pass, as far as its raw value tells."""
    same = {step.name for step in plan.steps if step.op == "identity" and step.feature == feature.name}
    tests: list[Callable[[Any], bool]] = []
    if feature.padding is not None:
        tests.append(lambda value: not _absent(feature, value))
    for step in _embeds(plan):
        tests += [_test(mask) for mask in _masks(step) if mask.of in {feature.name, *same}]
    return tests


def _test(mask: Mask) -> Callable[[Any], bool]:
    wanted: Any = mask.value.encode() if isinstance(mask.value, str) else mask.value
    if mask.test == "ne":
        return lambda value: bool(value != wanted)
    if mask.test == "lt":
        return lambda value: bool(value < wanted)
    return lambda value: bool(value >= wanted if mask.test == "ge" else value > wanted)
