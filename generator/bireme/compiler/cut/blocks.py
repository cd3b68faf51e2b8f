"""Which values of the CPU side can cross to the dense side as columns of numbers, and how many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bireme.compiler.rules.values import (
    Count,
    Ids,
    Masked,
    Numbers,
    Raw,
    Rows,
    Value,
    numbers,
    source_key,
    value_feature,
)
from bireme.compiler.shapes import TensorSpec

__all__ = ["Block", "as_block", "block_key", "block_shape", "width_of"]

Block = Rows | Numbers | Masked | Count


def as_block(value: Value | None, lengths: Mapping[str, int], spec: TensorSpec | None = None) -> Block | None:
    """The value as columns, or None if it cannot be: raw ids, or a sequence of any length.

    Args:
        value: meaning of a tensor.
        lengths: sequence feature → its length, where that is fixed.
        spec: the tensor's dtype, if known: what the plan makes as integers may be truth, which crosses.
    """
    if isinstance(value, Ids) and spec is not None and spec.dtype == "bool":
        value = _truth(value)
    if isinstance(value, Raw) and value.dtype == "bool":
        value = Numbers(value.feature, (), value.shape)
    block = numbers(value) or value
    if not isinstance(block, (Rows, Numbers, Masked, Count)):
        return None
    if block.shape[:1] != ("R",) or not all(d == "L" or isinstance(d, int) for d in block.shape[1:]):
        return None  # elements of sparse tensors, end to end
    if "L" in block.shape and value_feature(block) not in lengths:
        return None
    if isinstance(block, Rows) and not block.whole:
        return None  # the dense side multiplies, so that masks and weights cross once
    return block


def _truth(ids: Ids) -> Numbers | Masked:
    """Integers 0 and 1 that stand for booleans."""
    if "L" in ids.shape:
        return Masked(ids, 0, ids.shape)
    return Numbers(ids.feature, (), ids.shape, ids)


def block_key(block: Block) -> tuple[object, ...]:
    """Equal for blocks that hold the same numbers, whatever dimensions of size 1 they have."""
    if isinstance(block, Masked):
        return ("mask", block.key)
    if isinstance(block, Count):
        return ("count", block.mask.key, block.floor, block.root)
    if isinstance(block, Numbers):
        source = source_key(block.source) if block.source is not None else None
        return ("numbers", block.feature, block.chain, source)
    mask = block.mask.key if block.mask is not None else None
    pooling = (block.pool, mask, block.floor, block.weights, block.fill, block.present)
    return ("rows", source_key(block.ids), block.variable, *pooling)


def block_shape(block: Block, lengths: Mapping[str, int]) -> tuple[int, ...]:
    """Static shape of a block behind the rows."""
    length = lengths.get(value_feature(block), 0)
    shape = replace(block, shape=tuple(length if d == "L" else d for d in block.shape)).shape
    return tuple(int(dimension) for dimension in shape[1:])


def width_of(shape: tuple[int, ...]) -> int:
    """Columns of a block of this shape."""
    return int(np.prod(shape, dtype=int))
