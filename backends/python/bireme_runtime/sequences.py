"""Which elements of a batch's sequences count, and how much."""

from __future__ import annotations

import numpy as np

from .plan import Feature
from .requests import Array
from .state import State
from .steps import Embed, Mask
from .strings import FlatStrings

__all__ = ["admitted", "passed", "weights_of"]


_TESTS: dict[str, np.ufunc] = {"ne": np.not_equal, "ge": np.greater_equal, "gt": np.greater, "lt": np.less}


def admitted(step: Embed, state: State) -> Array | None:
    """bool, one an element of the step's ids: which of them count; None: all.

    Raises:
        BadRequests: a mask's sequence is not as long as the ids'.
    """
    return None if step.mask is None else passed(step.mask, step.ids, state)


def weights_of(step: Embed, state: State, kept: Array | None) -> Array | None:
    """float32, one an element of the step's ids that counts: its weight; None where there are none.

    Raises:
        BadRequests: weights are not as many as the ids, or not present where those are.
    """
    if step.weights is None:
        return None
    _check_lengths(step.weights, step.ids, state)
    weights = state.numbers(step.weights).astype(np.float32, copy=False)
    feature, other = state.features[step.weights], state.origin(step.ids)
    if feature.padding is not None and other.padding is not None:
        lacking = _absent(feature, state)
        bad = np.flatnonzero(lacking != _absent(other, state))
        if bad.size:
            lengths, what = state.lengths_of(step.weights), {True: "padding", False: "no padding"}
            raise state.batch.refuse(
                feature,
                lengths,
                bad,
                lambda i: f"is {weights[i]:g}, which is {what[bool(lacking[i])]}, unlike '{other.name}'",
            )
    return weights if kept is None else weights[kept]


def _absent(feature: Feature, state: State) -> Array:
    """Which elements of a padded feature are padding."""
    if feature.dtype == "string":
        return ~_differ(state.strings(feature.name), str(feature.padding).encode())
    values = state.numbers(feature.name)
    return np.asarray(values == values.dtype.type(feature.padding))


def passed(mask: Mask, ids: str, state: State) -> Array:
    """bool, one an element of `ids`: which of them pass a mask.

    Raises:
        BadRequests: the mask's sequence is not as long as the ids'.
    """
    _check_lengths(mask.of, ids, state)
    if mask.of not in state.ids and state.origin(mask.of).dtype == "string":
        found = _differ(state.strings(mask.of), str(mask.value).encode())
    else:
        values = state.numbers(mask.of)
        # TensorFlow compares in the dtype of the values.
        value = values.dtype.type(mask.value)
        found = _TESTS[mask.test](values, value)
    result: Array = np.asarray(found)
    return result if mask.also is None else result & passed(mask.also, ids, state)


def _differ(strings: FlatStrings, value: bytes) -> Array:
    """Which strings are not `value`."""
    differ = np.asarray(strings.lengths != len(value))
    same_length = np.flatnonzero(~differ)
    if value and same_length.size:
        wanted = FlatStrings.from_list([value]).take(np.zeros(same_length.size, dtype=np.int64))
        differ[same_length] = ~strings.take(same_length).equal(wanted)
    return differ


def _check_lengths(source: str, ids: str, state: State) -> None:
    """Refuse requests whose `source` has other lengths than the ids."""
    feature, other = state.origin(source), state.origin(ids)
    if feature.name == other.name:
        return
    mine, theirs = state.lengths_of(source), state.lengths_of(ids)
    if mine is None or theirs is None:
        return  # one value a row each
    bad = np.flatnonzero(mine != theirs)
    if bad.size:
        raise state.batch.refuse(
            feature,
            None,
            bad,
            lambda row: f"has {mine[row]} elements, but that of '{other.name}' has {theirs[row]}",
        )
