"""Ops that add, drop or keep dimensions, on the symbolic shapes of `values`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bireme.compiler.rules.values import Dim, Value

__all__ = ["drop", "insert", "reshape", "strided"]


def insert(value: Value, axis: int) -> Value | None:
    """`ExpandDims`: a new dimension of size 1; None if it would come before the rows."""
    shape = list(value.shape)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 1)
    return replace(value, shape=tuple(shape)) if shape[0] == "R" else None


def drop(value: Value, axes: Sequence[int]) -> Value | None:
    """`Squeeze`; None if a dropped dimension is not 1."""
    rank = len(value.shape)
    wanted = {axis % rank for axis in axes} or {i for i, d in enumerate(value.shape) if d == 1}
    if any(value.shape[axis] != 1 for axis in wanted):
        return None
    return replace(value, shape=tuple(d for i, d in enumerate(value.shape) if i not in wanted))


def reshape(value: Value, target: Sequence[int]) -> Value | None:
    """`Reshape` that keeps rows apart and only adds or drops dimensions of size 1; else None."""
    if not target or "L" in value.shape or target[0] != -1 or value.shape[:1] != ("R",):
        return None
    if [d for d in target[1:] if d != 1] != [d for d in value.shape[1:] if d != 1]:
        return None
    return replace(value, shape=("R", *target[1:]))


def strided(
    value: Value, spec: Any, begin: Sequence[int], end: Sequence[int], step: Sequence[int]
) -> Value | None:
    """`StridedSlice` that only inserts or drops dimensions of size 1 (`x[:, None]`, `x[:, 0]`); else None.

    Args:
        value: the sliced value.
        spec: the node's attributes with the five masks.
        begin: start of each slice.
        end: stop of each slice.
        step: stride of each slice.
    """

    def bit(mask: str, index: int) -> bool:
        return bool(spec[mask].i >> index & 1)

    source, result = list(value.shape), list[Dim]()
    entries = len(begin)
    for i in range(entries):
        if bit("new_axis_mask", i):
            result.append(1)
        elif bit("ellipsis_mask", i):
            later = sum(not bit("new_axis_mask", j) for j in range(i + 1, entries))
            while len(source) > later:
                result.append(source.pop(0))
        elif not source:
            return None
        elif bit("shrink_axis_mask", i):
            if source.pop(0) != 1 or begin[i] not in (0, -1):
                return None
        elif (bit("begin_mask", i) and bit("end_mask", i) and step[i] == 1) or (
            source[0] == 1 and (begin[i], end[i], step[i]) == (0, 1, 1)
        ):
            result.append(source.pop(0))
        else:
            return None
    shape = (*result, *source)
    return replace(value, shape=shape) if shape[:1] == ("R",) else None
