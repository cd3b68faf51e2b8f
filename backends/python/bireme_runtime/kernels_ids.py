"""Kernels of the steps that compute with integers: arithmetic, comparison, choice, and crosses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .aligned import align
from .farmhash import farmhash64
from .hash64 import mix_fingerprints
from .requests import Array
from .state import State
from .strings import FlatStrings
from .text_steps import Compute, Cross

__all__ = ["FUNCTIONS", "ID_KERNELS"]


def _truncated_mod(left: Array, right: Array) -> Array:
    """C's remainder, which has the sign of `left`."""
    return np.fmod(left, right)


#: Function of a `compute` step → what it does with arrays of the step's dtype.
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "cast": lambda x: x,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "mod": _truncated_mod,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "not": lambda x: x == 0,
    "and": lambda x, y: (x != 0) & (y != 0),
    "or": lambda x, y: (x != 0) | (y != 0),
    "where": lambda condition, x, y: np.where(condition != 0, x, y),
}


def compute_step(step: Compute, state: State) -> None:
    """An integer function; operands are first brought to the step's dtype, where they wrap as in C."""
    lead, rows = align(state, [name for name in step.of if isinstance(name, str)])
    operands = [
        state.numbers(operand)[rows[operand]].astype(step.dtype)
        if isinstance(operand, str)
        else np.array(operand, step.dtype)
        for operand in step.of
    ]
    with np.errstate(over="ignore"):
        result = FUNCTIONS[step.function](*operands)
    state.put_ids(step.name, lead, result.astype(np.int64))


def cross_step(step: Cross, state: State) -> None:
    """Mixed fingerprints modulo buckets."""
    lead, rows = align(state, step.of)
    columns = []
    for name in step.of:
        values = state.values(name)
        if isinstance(values, FlatStrings):
            columns.append(farmhash64(values)[rows[name]])
        else:
            columns.append(values[rows[name]].astype(np.int64).view(np.uint64))
    hashes = mix_fingerprints(step.key, columns)
    state.put_ids(step.name, lead, (hashes % np.uint64(step.buckets)).view(np.int64))


ID_KERNELS: dict[str, Callable[[Any, State], None]] = {"compute": compute_step, "cross": cross_step}
