"""Rules for further ways to make one vector of a padded sequence: maxima, roots, weights, bags of words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.sparse import Aside, Indices, Padded, Sizes, first_dim, sequence_axis
from bireme.compiler.rules.value_shapes import insert, strided
from bireme.compiler.rules.values import (
    Count,
    Ids,
    Masked,
    Numbers,
    Raw,
    Rows,
    Value,
    as_ids,
    both,
    one_each,
    same_mask,
)

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["POOL_RULES", "OneHotRows"]

Meaning = Value | Aside
#: Columns of a bag of words that are still looked up as rows of a unit matrix.
_WIDEST = 2048
#: Types that hold every id below that.
_WIDE = (tf.float32, tf.float64, tf.int32, tf.int64)


class OneHotRows:
    """The unit matrix as a table: row i has a 1 in column i. It has what the compiler asks of a variable."""

    def __init__(self, size: int) -> None:
        self.name = f"one_hot_{size}"
        self.dtype = tf.float32
        self.shape = tf.TensorShape([size, size])

    def read(self, first: int, last: int) -> np.ndarray[Any, Any]:
        """Rows [first, last)."""
        return np.eye(last - first, int(self.shape[1]), first, dtype=np.float32)


@dataclass(frozen=True)
class Scaled(Aside):
    """A float feature's sequence as weights, where a mask (if any) admits them."""

    feature: str
    mask: Masked | None
    shape: tuple[Any, ...]


def _largest(low: Lowering, node: Node) -> Meaning | None:
    """The largest of each column over a whole sequence."""
    rows, axis = low.lower(node.inputs[0]), low.scalar(node, 1)
    position = sequence_axis(rows.shape) if rows is not None else None
    if not isinstance(rows, Rows) or axis is None or position is None or rows.pool is not None:
        return None
    if rows.weights is not None or rows.mask is not None or rows.shape[position] != "L":
        return None
    if int(axis) % len(rows.shape) != position:
        return None
    kept = (1,) if node.attr["keep_dims"].b else ()
    shape = (*rows.shape[:position], *kept, *rows.shape[position + 1 :])
    return replace(rows, pool="max", present="all", shape=shape)


def _root(low: Lowering, node: Node) -> Meaning | None:
    """The square root of a sequence's length."""
    count = low.lower(node.inputs[0])
    power = 0.5 if node.op == "Sqrt" else low.scalar(node, 1)
    if not isinstance(count, Count) or count.root or power != 0.5:
        return None
    return replace(count, root=True, floor=math.sqrt(count.floor))


def _by_root(low: Lowering, node: Node) -> Meaning | None:
    """A masked sum over the root of the count of the same mask."""
    rows, count = low.lower(node.inputs[0]), low.lower(node.inputs[1])
    if not isinstance(rows, Rows) or not isinstance(count, Count) or rows.pool != "sum" or not count.root:
        return None
    if count.shape != one_each(rows) or rows.weights is not None or not same_mask(rows.mask, count.mask):
        return None
    if count.floor > 0 or node.op == "DivNoNan":
        return replace(rows, pool="sqrtn", floor=count.floor)
    return replace(rows, pool="sqrtn", floor=0.0, present="all")


def _scaled(low: Lowering, node: Node) -> Meaning | None:
    """`weights · mask`, both of one sequence."""
    for index in (0, 1):
        weights, mask = low.meaning(node.inputs[index]), low.lower(node.inputs[1 - index])
        if isinstance(weights, Raw) and weights.dtype == "float32" and isinstance(mask, Masked):
            fits = weights.shape == mask.shape and weights.shape[:2] == ("R", "L")
            return Scaled(weights.feature, mask, weights.shape) if fits else None
    return None


def _weighted(low: Lowering, node: Node) -> Meaning | None:
    """`rows · weights` of a padded sequence."""
    for index in (0, 1):
        rows, weights = low.lower(node.inputs[index]), low.meaning(node.inputs[1 - index])
        if isinstance(weights, Raw) and weights.dtype == "float32":
            weights = Scaled(weights.feature, None, weights.shape)
        if not isinstance(rows, Rows) or not isinstance(weights, Scaled) or rows.pool is not None:
            continue
        if rows.shape[1:2] != ("L",) or weights.shape != one_each(rows) or rows.weights is not None:
            return None
        mask = rows.mask
        if weights.mask is not None:
            mask = both(replace(weights.mask, shape=()), rows.mask)
        return replace(rows, weights=weights.feature, mask=mask)
    return None


def _reshaped(low: Lowering, node: Node) -> Meaning | None:
    """Weights with a dimension of size 1 added or dropped."""
    value = low.meaning(node.inputs[0])
    if not isinstance(value, Scaled):
        return None
    shaped: Any = None
    if node.op == "ExpandDims" and low.scalar(node, 1) is not None:
        shaped = insert(value, int(low.scalar(node, 1)))  # type: ignore[arg-type]
    bounds = [low.constant(node, i) for i in range(1, len(node.inputs))]
    if node.op == "StridedSlice" and all(bound is not None for bound in bounds):
        begin, end, step = ([int(x) for x in bound] for bound in bounds if bound is not None)
        shaped = strided(value, node.attr, begin, end, step)  # type: ignore[arg-type]
    return shaped if isinstance(shaped, Scaled) else None


def _as_floats(rule: Callable[[Lowering, Node], Rows | None]) -> Callable[[Lowering, Node], Rows | None]:
    """A rule for counts that are floats; integers have a meaning once they are cast: `_cast_counts`."""

    def checked(low: Lowering, node: Node) -> Rows | None:
        return rule(low, node) if node.attr["T"].type == tf.float32 and node.name not in low.apart else None

    return checked


def _cast_counts(low: Lowering, node: Node) -> Meaning | None:
    """Counts in integers, cast to float32."""
    source = low.graph.producer(node.inputs[0])
    if source.name in low.apart or node.name in low.apart:
        return None
    rule = {"OneHot": _one_hot, "DenseBincount": _bag}.get(source.op)
    return rule(low, source) if rule is not None and node.attr["DstT"].type == tf.float32 else None


def _counted(low: Lowering, ref: str) -> Ids | None:
    """Ids, also those that went through float32: what that rounds, or cannot hold, has no row."""
    node, value = low.graph.producer(ref), low.lower(ref)
    if value is None and node.op == "Cast":
        before = low.lower(node.inputs[0])
        if isinstance(before, Numbers) and not before.chain and isinstance(before.source, Ids):
            return replace(before.source, shape=before.shape)
        plain = isinstance(before, Numbers) and not before.chain and before.source is None
        if isinstance(before, Numbers) and plain and before.feature in low.graph.features:
            dtype = tf.as_dtype(low.graph.nodes[low.graph.features[before.feature]].attr["dtype"].type)
            return as_ids(Raw(before.feature, dtype.name, before.shape))
    return as_ids(value)


def _one_hot(low: Lowering, node: Node) -> Rows | None:
    """`one_hot`: ids as rows of a unit matrix, nothing where it has none."""
    ids, size = _counted(low, node.inputs[0]), low.scalar(node, 1)
    last = node.attr["axis"].i in (-1, len(ids.shape) if ids is not None else -1)
    if ids is None or size is None or not last or low.scalar(node, 2) != 1 or low.scalar(node, 3) != 0:
        return None
    return _unit_rows(low, ids, int(size))


def _unit_rows(low: Lowering, ids: Ids, size: int) -> Rows | None:
    if not 0 < size <= _WIDEST:
        return None
    name = f"one_hot_{size}"
    low.joined.setdefault(name, OneHotRows(size))
    inside = Masked(ids, size, (), "lt", None if ids.non_negative else Masked(ids, 0, (), "ge"))
    padded = ids.shape[1] if len(ids.shape) > 1 else None
    mask = both(inside, padded.kept.mask) if isinstance(padded, Padded) else inside
    rows = Rows(ids, name, size, (*ids.shape, size), mask)
    return rows if sequence_axis(ids.shape) is not None else replace(rows, pool="sum")


def _bag(low: Lowering, node: Node) -> Rows | None:
    """`DenseBincount` without weights: how often, or whether, each id is in a row."""
    source = low.graph.producer(node.inputs[0])
    while source.op == "Cast" and source.attr["DstT"].type in _WIDE and _counted(low, source.output) is None:
        source = low.graph.producer(source.inputs[0])  # there and back through float32
    ids, size, weights = _counted(low, source.output), _size(low, node), low.constant(node, 2)
    if ids is None or ids.shape != ("R", "L") or size is None or weights is None or weights.size:
        return None
    rows = _unit_rows(low, ids, size)
    if rows is None:
        return None
    return replace(rows, pool="max" if node.attr["binary_output"].b else "sum", shape=("R", size))


def _size(low: Lowering, node: Node) -> int | None:
    """A constant, or min(constant, max(a larger one, …)), as TensorFlow bounds it."""
    if low.scalar(node, 1) is not None:
        return int(low.scalar(node, 1))
    least = low.graph.producer(node.inputs[1])
    for index in (0, 1):
        if least.op == "Minimum" and low.scalar(least, index) is not None:
            bound, most = int(low.scalar(least, index)), low.graph.producer(least.inputs[1 - index])
            known = [low.scalar(most, i) for i in (0, 1)] if most.op == "Maximum" else []
            return bound if any(value is not None and value >= bound for value in known) else None
    return None


def _dense(low: Lowering, node: Node) -> Meaning | None:
    """`sparse.to_dense` with a default that no id is."""
    indices, sizes = low.meaning(node.inputs[0]), low.meaning(node.inputs[1])
    ids, default = as_ids(low.lower(node.inputs[2])), low.scalar(node, 3)
    if not isinstance(indices, Indices) or ids is None or default is None or int(default) >= 0:
        return None
    if not isinstance(sizes, Sizes) or sizes.dims != indices.kept.padded or first_dim(ids) != indices.kept:
        return None
    return replace(ids, shape=("R", Padded(indices.kept, default)))


POOL_RULES: dict[str, tuple[Any, ...]] = {
    "Max": (_largest,),
    **dict.fromkeys(("Sqrt", "Pow"), (_root,)),
    **dict.fromkeys(("RealDiv", "DivNoNan"), (_by_root,)),
    "Mul": (_scaled, _weighted),
    **dict.fromkeys(("ExpandDims", "StridedSlice"), (_reshaped,)),
    "OneHot": (_as_floats(_one_hot),),
    "DenseBincount": (_as_floats(_bag),),
    "Cast": (_cast_counts,),
    "SparseToDense": (_dense,),
}
