"""Rules about sequences: which elements count, and sums and means over them; named by `lower.RULES`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.sparse import sequence_axis
from bireme.compiler.rules.values import (
    Count,
    Ids,
    Masked,
    Rows,
    Value,
    admit,
    as_ids,
    as_text,
    both,
    fixed_parts,
    one_each,
    same_mask,
    span,
)

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = [
    "admitted_or_zero",
    "at_least",
    "cast_mask",
    "mask",
    "mean",
    "mean_of_all",
    "positive",
    "times_mask",
    "total",
]


def mask(low: Lowering, node: Node) -> Value | None:
    """`words != ""` or `ids != value`: the elements that count."""
    source, value = low.lower(node.inputs[0]), low.scalar(node, 1)
    text = as_text(source)
    if text is not None and ("L" in text.shape or text.shape[:1] != ("R",)) and value == b"":
        return Masked(text, "", text.shape)
    ids = as_ids(source)
    if ids is None or "L" not in ids.shape or not isinstance(value, np.integer):
        return None
    return Masked(ids, int(value), ids.shape)


def positive(low: Lowering, node: Node) -> Value | None:
    """`ids > value`; `ids > 0` is `ids != 0` where none is negative."""
    found = mask(low, node)
    if not isinstance(found, Masked) or not isinstance(found.source, Ids):
        return None
    same = found.source.non_negative and found.value == 0
    return found if same else replace(found, test="gt")


def cast_mask(low: Lowering, node: Node) -> Value | None:
    """A mask as 0 and 1."""
    value = low.lower(node.inputs[0])
    return value if isinstance(value, Masked) and node.attr["DstT"].type == tf.float32 else None


def times_mask(low: Lowering, node: Node) -> Value | None:
    """`rows · mask`, or `mask · mask`."""
    left, right = low.lower(node.inputs[0]), low.lower(node.inputs[1])
    if isinstance(left, Masked) and isinstance(right, Masked):
        together = left.shape == right.shape and span(left.source) == span(right.source)
        return both(left, right) if together else None
    if isinstance(left, Masked):
        left, right = right, left
    return admit(left, right) if isinstance(right, Masked) else None


def admitted_or_zero(low: Lowering, node: Node) -> Value | None:
    """`where(mask, rows, 0)`."""
    admitted = low.lower(node.inputs[0])
    if not isinstance(admitted, Masked) or low.scalar(node, 2) != 0:
        return None
    return admit(low.lower(node.inputs[1]), admitted)


def total(low: Lowering, node: Node) -> Value | None:
    """A sum over the sequence: of rows, or of a mask, which counts."""
    value, axis = low.lower(node.inputs[0]), low.scalar(node, 1)
    position = sequence_axis(value.shape) if value is not None else None
    if value is None or axis is None or position is None:
        return None
    if value.shape[position] != "L" and isinstance(value, Rows) and value.mask is None:
        return None  # places behind the elements of a row would count
    if int(axis) % len(value.shape) != position:
        return None
    kept = (1,) if node.attr["keep_dims"].b else ()
    shape = (*value.shape[:position], *kept, *value.shape[position + 1 :])
    if isinstance(value, Rows) and value.pool is None:
        return replace(value, pool="sum", shape=shape)
    return Count(value, shape) if isinstance(value, Masked) else None


def mean_of_all(low: Lowering, node: Node) -> Value | None:
    """The mean over a whole sequence; that of an empty one would be NaN, and is refused."""
    value = total(low, node)
    if not isinstance(value, Rows) or value.mask is not None or value.weights is not None:
        return None  # a mean of weighted rows would be divided by the sum of the weights
    if fixed_parts(value.ids) is not None:
        return replace(value, pool="mean")
    placeholder = low.graph.features.get(value.ids.feature)  # none: made by a piece of the graph
    fixed = placeholder is not None and low.graph.nodes[placeholder].attr["shape"].shape.dim[1].size > 0
    return replace(value, pool="mean", present="" if fixed else "all")


def at_least(low: Lowering, node: Node) -> Value | None:
    """`maximum(count, floor)`, which spares a mean the division by 0."""
    for index in (0, 1):
        value, floor = low.lower(node.inputs[index]), low.scalar(node, 1 - index)
        if isinstance(value, Count) and floor is not None:
            return replace(value, floor=max(value.floor, float(floor)))
    return None


def mean(low: Lowering, node: Node) -> Value | None:
    """A masked sum over the count of the same mask."""
    value, count = low.lower(node.inputs[0]), low.lower(node.inputs[1])
    if not isinstance(value, Rows) or not isinstance(count, Count) or value.pool != "sum":
        return None
    safe = count.floor > 0 or node.op == "DivNoNan"
    aligned = count.shape == one_each(value)
    if count.root or value.weights is not None or not aligned or not same_mask(value.mask, count.mask):
        return None
    if not safe:
        return replace(value, pool="mean", present="all")  # the original's 0/0 is refused
    return replace(value, pool="mean", floor=count.floor or 1.0)
