"""What each step of a feature plan does, for all rows of a batch at once.

`KERNELS[step.op]` takes the step and the `State` of the running batch. Id steps put an int64 array into
`state.ids`; block steps write their columns of `state.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .farmhash import hash_bucket
from .plan import (
    Bucketize,
    Embed,
    HashBucket,
    IdentityId,
    IntVocabulary,
    Mask,
    Numeric,
    Vocabulary,
)
from .requests import Array
from .state import State

__all__ = ["KERNELS", "State", "apply_chain"]


def hash_bucket_step(step: HashBucket, state: State) -> None:
    """FarmHash64 modulo buckets."""
    state.put_ids(step.name, step.feature, hash_bucket(state.strings(step.feature), step.buckets))


def vocabulary_step(step: Vocabulary, state: State) -> None:
    """Exact string vocabulary."""
    ids = state.vocabularies[step.file].lookup(state.strings(step.feature), step.default)
    state.put_ids(step.name, step.feature, ids)


def int_vocabulary_step(step: IntVocabulary, state: State) -> None:
    """Exact integer vocabulary."""
    ids = state.vocabularies[step.file].lookup(state.numbers(step.feature).astype(np.int64), step.default)
    state.put_ids(step.name, step.feature, ids)


def bucketize_step(step: Bucketize, state: State) -> None:
    """How many edges are ≤ the value. As in TensorFlow, integers are compared in FP32, doubles exactly."""
    edges = np.array(step.edges, dtype=np.float32)
    values = state.numbers(step.feature)
    if values.dtype.kind != "f":
        values = values.astype(np.float32)
    state.put_ids(step.name, step.feature, np.searchsorted(edges, values, side="right").astype(np.int64))


def identity_step(step: IdentityId, state: State) -> None:
    """The feature is the id."""
    state.put_ids(step.name, step.feature, state.numbers(step.feature).astype(np.int64, copy=False))


def embed_step(step: Embed, state: State) -> None:
    """Gather, and pool where the plan says so."""
    ids, feature, table = state.ids[step.ids], state.feature_of[step.ids], state.tables[step.table]
    lengths = state.lengths_of(step.ids)
    outside = ids.view(np.uint64) >= len(table)  # negative ids are huge as unsigned
    if outside.any():
        rows = f"table '{step.table}' has rows 0 to {len(table) - 1}"
        bad = np.flatnonzero(outside)
        raise state.batch.refuse(feature, lengths, bad, lambda i: f"gives id {ids[i]}; {rows}")
    block = state.outputs[step.side][:, step.offset : step.offset + step.width]
    if step.pool is None:
        # Ids are in range, so "clip" never clips; it spares numpy a buffered second check.
        block[...] = table.take(ids, axis=0, mode="clip")
        return
    assert lengths is not None
    pooled = _pool(step, state, table, ids, lengths)
    beyond = np.flatnonzero(~(np.abs(pooled).max(axis=1, initial=0.0) <= state.limit))
    if beyond.size:  # only a sum in FP16 gets there
        what = f"pooled by {step.pool} is beyond the {state.limit:g} that the hand-over holds"
        raise state.batch.refuse(feature, None, beyond, lambda _: what)
    block[...] = pooled


def _pool(step: Embed, state: State, table: Array, ids: Array, lengths: Array) -> Array:
    """Sum or mean of the admitted rows of each sequence; an empty one gives 0."""
    if step.mask is not None:
        admitted = _admitted(step.mask, state)
        ids = ids[admitted]
        row_of = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(row_of[admitted], minlength=len(lengths))
    result = np.zeros((len(lengths), step.width), dtype=np.float32)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = np.cumsum(lengths) - lengths
        rows = table.take(ids, axis=0, mode="clip")
        result[filled] = np.add.reduceat(rows, starts[filled], axis=0, dtype=np.float32)
    if step.pool == "mean":
        result /= np.maximum(lengths, step.floor).astype(np.float32)[:, None]
    return result


def _admitted(mask: Mask, state: State) -> Array:
    if mask.of in state.ids:
        return np.asarray(state.ids[mask.of] != mask.value)
    return np.asarray(state.strings(mask.of).lengths != 0)  # the plan knows one raw mask: the empty string


_OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "rsub": lambda x, c: np.subtract(c, x),
    "mul": np.multiply,
    "div": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "log1p": np.log1p,
    "log": np.log,
    "sqrt": np.sqrt,
    "square": np.square,
    "abs": np.abs,
    "neg": np.negative,
    "tanh": np.tanh,
}


def apply_chain(chain: Sequence[tuple[str, float | None]], values: Array) -> Array:
    """Scalar operations in FP32, in the order of the original graph; the result may be NaN or infinite."""
    with np.errstate(all="ignore"):
        values = values.astype(np.float32, copy=False)
        for name, constant in chain:
            operation = _OPERATIONS[name]
            values = operation(values) if constant is None else operation(values, np.float32(constant))
    return values


def numeric_step(step: Numeric, state: State) -> None:
    """A chain of scalar operations into one column."""
    given = state.numbers(step.feature)
    values = apply_chain(step.chain, given)
    outside = ~(np.abs(values) <= state.limit)  # also true for NaN
    if outside.any():
        done = ", ".join(name for name, _ in step.chain) or "conversion"
        raise state.batch.refuse(
            state.features[step.feature],
            None,
            np.flatnonzero(outside),
            lambda i: f"is {given[i]}, which becomes {values[i]} after {done}",
        )
    state.outputs[step.side][:, step.offset] = values


KERNELS: dict[str, Callable[[Any, State], None]] = {
    "hash_bucket": hash_bucket_step,
    "vocabulary": vocabulary_step,
    "int_vocabulary": int_vocabulary_step,
    "bucketize": bucketize_step,
    "identity": identity_step,
    "embed": embed_step,
    "numeric": numeric_step,
}
