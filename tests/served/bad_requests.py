"""Requests that must fail, and what each of them is told. All start from a good one with N = 80."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from served_helpers import Array, Tensors

__all__ = ["BAD", "ITEMS", "for_users", "with_candidates"]

ITEMS = ("affinity", "item_feature_0", "item_feature_1", "item_feature_2", "item_feature_3", "item_id")


def with_candidates(tensors: Tensors, count: int) -> Tensors:
    """The first `count` candidates, repeated from the start if there are not as many."""
    return {
        name: array[:, np.arange(count) % array.shape[1]] if name in ITEMS else array
        for name, array in tensors.items()
    }


def for_users(tensors: Tensors, count: int) -> Tensors:
    """The same request for `count` users.

    Not by np.repeat: for object arrays numpy 1.26 counts references without the GIL there, and threads that
    share the strings crash.
    """
    return {name: np.concatenate([array] * count) for name, array in tensors.items()}


def _replaced(name: str, change: Callable[[Array], Any]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: change(tensors[name])}


def _put(name: str, position: int, value: Any) -> Callable[[Tensors], Tensors]:
    def change(array: Array) -> Array:
        changed = array.copy()
        changed[0, position] = value
        return changed

    return _replaced(name, change)


def _without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: array for name, array in tensors.items() if name not in names}


#: What is wrong → (how to make it, what the server says). The server's own checks name the input too.
BAD: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "no candidates": (
        lambda t: with_candidates(t, 0),
        "feature 'affinity' has 0 candidates; a request must have 1 to 512",
    ),
    "too many candidates": (
        lambda t: with_candidates(t, 513),
        "feature 'affinity' has 513 candidates; a request must have 1 to 512",
    ),
    "features disagree on N": (
        _replaced("affinity", lambda a: a[:, :79]),
        "feature 'item_feature_0' has 80 candidates, 'affinity' has 79",
    ),
    "NaN": (
        _put("affinity", 3, np.nan),
        "feature 'affinity', candidate 3: the value is nan; it must be finite",
    ),
    "infinity": (
        _put("item_feature_0", 79, -np.inf),
        "feature 'item_feature_0', candidate 79: the value is -inf",
    ),
    "outside the logarithm": (
        _put("affinity", 5, -2.0),
        "feature 'affinity', candidate 5: the value is -2.0, which becomes nan after log1p",
    ),
    "bytes that are no text": (
        _put("item_id", 7, b"all-\xff"),
        "feature 'item_id', candidate 7: the value is not valid UTF-8",
    ),
    "a history that is no text": (
        _put("recent_items", 1, b"\xc3("),
        "feature 'recent_items': the value is not valid UTF-8",
    ),
    "hour 24": (_put("hour", 0, 24), "feature 'hour': the value gives id 24; table '.*' has rows 0 to 23"),
    "hour -1": (_put("hour", 0, -1), "feature 'hour': the value gives id -1; table '.*' has rows 0 to 23"),
    "all items missing": (_without(*ITEMS), "item_feature_0"),
    "an unknown input": (lambda t: t | {"colour": np.ones((1, 1), np.float32)}, "colour"),
    "a misspelt input": (
        lambda t: _without("recent_items")(t) | {"recent_item": t["recent_items"]},
        "unexpected inference input 'recent_item'",
    ),
    "another integer": (
        _replaced("hour", lambda a: a.astype(np.int32)),
        "input 'hour' data-type is 'INT32', but model 'obd' expects 'INT64'",
    ),
    "numbers for strings": (
        _replaced("item_id", lambda a: np.ones(a.shape, np.float32)),
        "input 'item_id' data-type is 'FP32', but model 'obd' expects 'BYTES'",
    ),
    "no dimension for users": (
        _replaced("item_id", lambda a: a[0]),
        "input 'item_id' batch size does not match",
    ),
    "one dimension too many": (
        _replaced("item_id", lambda a: a[..., None]),
        "unexpected shape for input 'item_id'",
    ),
    "two hours": (_replaced("hour", lambda a: np.array([[1, 2]])), "unexpected shape for input 'hour'"),
    "users disagree": (
        _replaced("hour", lambda a: np.array([[1], [2]])),
        "input 'hour' batch size does not match other inputs",
    ),
    "too many users": (
        lambda t: for_users(t, 17),
        "batch-size must be <= 16 for 'obd'",
    ),
}
