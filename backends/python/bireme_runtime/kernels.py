"""What each step of a feature plan does, for all rows of a batch at once.

`KERNELS[step.op]` takes the step and the `State` of the running batch. Id steps put an int64 array into
`state.ids`; block steps write their columns of `state.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .farmhash import hash_bucket
from .kernels_ids import ID_KERNELS
from .kernels_text import TEXT_KERNELS
from .plan import (
    Admitted,
    Bucketize,
    Counted,
    Embed,
    HashBucket,
    IdentityId,
    IntVocabulary,
    Numeric,
    Vocabulary,
)
from .requests import Array
from .sequences import admitted, passed, weights_of
from .state import State
from .subgraph import subgraph_step
from .tables import take_rows

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
    edges = _flush(np.array(step.edges, dtype=np.float32))
    values = state.numbers(step.feature)
    values = _flush(values) if values.dtype.kind == "f" else values.astype(np.float32)
    state.put_ids(step.name, step.feature, np.searchsorted(edges, values, side="right").astype(np.int64))


def _flush(values: Array) -> Array:
    """Denormal numbers as 0, which is what TensorFlow's threads take them for when they compare."""
    return np.where(np.abs(values) < np.finfo(values.dtype).tiny, values.dtype.type(0), values)


def identity_step(step: IdentityId, state: State) -> None:
    """The feature is the id."""
    state.put_ids(step.name, step.feature, state.numbers(step.feature).astype(np.int64, copy=False))


def embed_step(step: Embed, state: State) -> None:
    """Gather, and pool where the plan says so."""
    ids, feature, table = state.ids[step.ids], state.feature_of[step.ids], state.tables[step.table]
    kept = admitted(step, state)
    outside = ids.view(np.uint64) >= len(table)  # negative ids are huge as unsigned
    if kept is not None:
        outside &= kept  # a padding value need not be a row
    if outside.any():
        rows = f"table '{step.table}' has rows 0 to {len(table) - 1}"
        bad, lengths = np.flatnonzero(outside), state.lengths_of(step.ids)
        raise state.batch.refuse(feature, lengths, bad, lambda i: f"gives id {ids[i]}; {rows}")
    block = state.outputs[step.side][:, step.offset : step.offset + step.width]
    if step.pool is None:
        # A sequence has its fixed length: `measure` and the subgraphs see to that.
        block[...] = take_rows(table, ids).reshape(block.shape)
        return
    pooled = _pool(step, state, table, ids, kept)
    beyond = np.flatnonzero(~(np.abs(pooled).max(axis=1, initial=0.0) <= state.limit))
    if beyond.size:  # only a sum in FP16 gets there
        what = f"pooled by {step.pool} is beyond the {state.limit:g} that the hand-over holds"
        raise state.batch.refuse(feature, None, beyond, lambda _: what)
    block[...] = pooled


def _pool(step: Embed, state: State, table: Array, ids: Array, kept: Array | None) -> Array:
    """The admitted rows of each sequence as one; see `Embed`."""
    lengths = state.lengths_of(step.ids)
    if lengths is None:
        lengths = np.ones(len(ids), dtype=np.int64)
    weights = weights_of(step, state, kept)
    if kept is not None:
        ids = ids[kept]
        row_of = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(row_of[kept], minlength=len(lengths))
    empty = lengths == 0
    if step.present == "all" and empty.any():
        what = f"has no element that counts, and the {step.pool} of none is not a number"
        raise state.batch.refuse(state.feature_of[step.ids], None, np.flatnonzero(empty), lambda _: what)
    rows = take_rows(table, ids)
    if weights is not None:
        rows = rows * weights[:, None]
    result = _reduce(np.maximum if step.pool == "max" else np.add, rows, lengths)
    if step.pool in ("mean", "sqrtn"):
        divisor = _divisor(step, lengths, weights)[:, None]
        # Weights may add up to 0; the original then gives 0 (DivNoNan).
        result = np.divide(result, divisor, out=np.zeros_like(result), where=divisor != 0)
    if step.fill is not None:
        result[empty] = take_rows(table, np.array(step.fill))
    return result


def _divisor(step: Embed, lengths: Array, weights: Array | None) -> Array:
    """FP32 [sequences]: what a mean or sqrtn divides the sum by."""
    if weights is None:
        return np.maximum(lengths if step.pool == "mean" else np.sqrt(lengths), step.floor).astype(np.float32)
    powers = weights if step.pool == "mean" else np.square(weights)
    total = _reduce(np.add, powers[:, None], lengths)[:, 0]
    return total if step.pool == "mean" else np.sqrt(total)


def _reduce(operation: np.ufunc, rows: Array, lengths: Array) -> Array:
    """FP32 [sequences, width] of rows laid end to end; zeros where a sequence is empty."""
    result = np.zeros((len(lengths), rows.shape[1]), dtype=np.float32)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = np.cumsum(lengths) - lengths
        result[filled] = operation.reduceat(rows, starts[filled], axis=0, dtype=np.float32)
    return result


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
            state.origin(step.feature),
            state.lengths_of(step.feature),
            np.flatnonzero(outside),
            lambda i: f"is {given[i]}, which becomes {values[i]} after {done}",
        )
    state.outputs[step.side][:, step.offset : step.offset + step.width] = values.reshape(-1, step.width)


def admitted_step(step: Admitted, state: State) -> None:
    """A mask as numbers."""
    block = state.outputs[step.side][:, step.offset : step.offset + step.width]
    block[...] = passed(step.mask, step.mask.of, state).reshape(block.shape)


def counted_step(step: Counted, state: State) -> None:
    """A sum over a mask."""
    kept, lengths = passed(step.mask, step.mask.of, state), state.lengths_of(step.mask.of)
    before = np.append(0, np.cumsum(kept))
    ends = np.arange(1, len(kept) + 1) if lengths is None else np.cumsum(lengths)
    counts = (before[ends] - before[ends - (1 if lengths is None else lengths)]).astype(np.float32)
    counts = np.sqrt(counts) if step.root else counts
    state.outputs[step.side][:, step.offset] = np.maximum(counts, np.float32(step.floor))


KERNELS: dict[str, Callable[[Any, State], None]] = {
    "hash_bucket": hash_bucket_step,
    "vocabulary": vocabulary_step,
    "int_vocabulary": int_vocabulary_step,
    "bucketize": bucketize_step,
    "identity": identity_step,
    "embed": embed_step,
    "numeric": numeric_step,
    **TEXT_KERNELS,
    **ID_KERNELS,
    "admitted": admitted_step,
    "counted": counted_step,
    "subgraph": subgraph_step,
}
