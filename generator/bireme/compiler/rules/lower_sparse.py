"""Rules for sparse tensors and segments: `embedding_lookup_sparse` and what stands around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.compiler.graph import Node
from bireme.compiler.rules.sparse import (
    Absent,
    Aside,
    Distinct,
    Indices,
    Inverse,
    Kept,
    Ones,
    Positions,
    Segments,
    Sizes,
    Weights,
    aligned,
    first_dim,
    keep,
    narrow,
    pooled,
)
from bireme.compiler.rules.values import Ids, Masked, Pool, Raw, Rows, Value, as_ids, both, same_mask

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["SPARSE_RULES", "as_weights", "compared"]

Meaning = Value | Aside
_TESTS: dict[str, Any] = {"NotEqual": "ne", "GreaterEqual": "ge", "Greater": "gt"}
_POOLS: dict[str, Pool] = {"Sum": "sum", "Mean": "mean", "SqrtN": "sqrtn", "Max": "max"}


def compared(low: Lowering, node: Node) -> Masked | None:
    """`x != c`, `x >= c` or `x > c`, for elements of any shape."""
    if node.op not in _TESTS:
        return None
    value, constant = low.lower(node.inputs[0]), low.scalar(node, 1)
    other = low.graph.producer(node.inputs[1])
    text = isinstance(value, Raw) and value.dtype == "string"
    if other.op == "ZerosLike" and other.inputs[0] == node.inputs[0]:
        constant = b"" if text else np.int64(0)
    source = value if isinstance(value, Raw) and value.dtype in ("string", "float32") else as_ids(value)
    if source is None or constant is None:
        return None
    if text:
        known = node.op == "NotEqual" and isinstance(constant, bytes) and _is_utf8(constant)
        return Masked(source, constant.decode(), source.shape) if known else None
    return Masked(source, constant.item(), source.shape, _TESTS[node.op])


def _is_utf8(text: bytes) -> bool:
    return text.decode(errors="replace").encode() == text


def _test(low: Lowering, node: Node) -> Meaning | None:
    """A test of kept elements."""
    mask = compared(low, node)
    return mask if mask is not None and isinstance(mask.shape[0], Kept) else None


def _and(low: Lowering, node: Node) -> Meaning | None:
    """Two tests of the same kept elements; `ones_like` is none."""
    for index in (0, 1):
        mask, other = low.lower(node.inputs[index]), node.inputs[1 - index]
        if isinstance(mask, Masked) and isinstance(mask.shape[0], Kept):
            second = low.meaning(other)
            if isinstance(second, Ones) and aligned(second.kept, mask.shape[0]):
                return mask
            if isinstance(second, Masked) and second.shape == mask.shape:
                return both(mask, second)
    return None


def _where(low: Lowering, node: Node) -> Meaning | None:
    """The places of the elements that pass a test."""
    mask = low.lower(node.inputs[0])
    if not isinstance(mask, Masked):
        mask = compared(low, low.graph.producer(node.inputs[0]))
    if mask is None:
        return None
    if mask.shape in (("R", "L"), ("R", 1)):
        return Indices(keep(mask))
    if len(mask.shape) == 1 and isinstance(mask.shape[0], Kept) and mask.shape[0].fill is None:
        return Positions(mask.shape[0], narrow(mask.shape[0], mask))
    return None


def _gather_nd(low: Lowering, node: Node) -> Meaning | None:
    """The kept elements of a padded tensor."""
    value, indices = low.lower(node.inputs[0]), low.meaning(node.inputs[1])
    if not isinstance(value, (Raw, Ids)) or not isinstance(indices, Indices):
        return None
    if value.shape != indices.kept.padded:
        return None
    return replace(value, shape=(indices.kept,))


def _gather(low: Lowering, node: Node) -> Meaning | None:
    """Kept elements among other kept ones, their rows of a table, or one size of a shape."""
    source, where = low.meaning(node.inputs[0]), low.meaning(node.inputs[1])
    if node.op == "GatherV2" and (node.attr["batch_dims"].i or low.scalar(node, 2) != 0):
        return None
    if isinstance(source, Sizes) and not source.scalar and low.constant(node, 1) is not None:
        index = np.asarray(low.constant(node, 1))
        dims = tuple(source.dims[int(i)] for i in index.reshape(-1))
        return Sizes(dims, index.ndim == 0) if index.ndim < 2 else None
    if isinstance(where, Positions):
        if isinstance(source, Indices) and source.kept == where.old:
            return Indices(where.new)
        dim = first_dim(source)
        if isinstance(source, (Raw, Ids, Masked)) and isinstance(dim, Kept) and aligned(dim, where.old):
            return replace(source, shape=(where.new, *source.shape[1:]))
    if isinstance(where, Inverse) and isinstance(source, Rows) and source.shape[0] == where.distinct:
        return replace(source, shape=(where.distinct.kept, *source.shape[1:]))
    return None


def _unique(low: Lowering, node: Node) -> Meaning | None:
    """The different ones of some ids."""
    value = as_ids(low.lower(node.inputs[0]))
    dim = first_dim(value)
    if value is None or not isinstance(dim, Kept) or len(value.shape) != 1:
        return None
    return replace(value, shape=(Distinct(node.name, dim),))


def _inverse(low: Lowering, node: Node) -> Meaning | None:
    value = _unique(low, node)
    return Inverse(value.shape[0]) if isinstance(value, Ids) else None


def _sparse_reshape(low: Lowering, node: Node) -> Meaning | None:
    """To the shape that it has."""
    indices, sizes = low.meaning(node.inputs[0]), low.meaning(node.inputs[2])
    same = isinstance(indices, Indices) and isinstance(sizes, Sizes) and sizes.dims == indices.kept.padded
    return indices if same and isinstance(indices, Aside) else None


def _sparse_shape(low: Lowering, node: Node) -> Meaning | None:
    indices = _sparse_reshape(low, node)
    return Sizes(indices.kept.padded) if isinstance(indices, Indices) else None


def _filled(low: Lowering, node: Node) -> Kept | None:
    """The elements after a row without any got one."""
    indices, default = low.meaning(node.inputs[0]), low.scalar(node, 3)
    value, sizes = low.lower(node.inputs[1]), low.meaning(node.inputs[2])
    if not isinstance(indices, Indices) or not isinstance(sizes, Sizes) or default is None:
        return None
    if sizes.dims != indices.kept.padded or first_dim(value) != indices.kept:
        return None
    if isinstance(value, Raw) and value.dtype == "float32":
        return replace(indices.kept, fill=0) if default == 1 else None  # weights
    known = as_ids(value) is not None
    return replace(indices.kept, fill=int(default)) if known and int(default) >= 0 else None


def _filled_indices(low: Lowering, node: Node) -> Meaning | None:
    kept = _filled(low, node)
    return Indices(kept) if kept is not None else None


def _filled_values(low: Lowering, node: Node) -> Meaning | None:
    kept, value = _filled(low, node), low.lower(node.inputs[1])
    return replace(value, shape=(kept,)) if kept is not None and value is not None else None


def _absent(low: Lowering, node: Node) -> Meaning | None:
    kept = _filled(low, node)
    return Absent(kept) if kept is not None else None


def _absent_everywhere(low: Lowering, node: Node) -> Meaning | None:
    """`tile` and `reshape` of a column that tells of rows without elements."""
    absent = low.meaning(node.inputs[0])
    return absent if isinstance(absent, Absent) else None


def _zero_where_absent(low: Lowering, node: Node) -> Meaning | None:
    """`where(no element, 0, pooled)`."""
    absent, rows = low.meaning(node.inputs[0]), low.lower(node.inputs[2])
    zero = low.graph.producer(node.inputs[1]).op == "ZerosLike" or low.scalar(node, 1) == 0
    if not isinstance(absent, Absent) or not isinstance(rows, Rows) or rows.pool is None or not zero:
        return None
    ours = absent.kept.mask is None if rows.mask is None else same_mask(absent.kept.mask, rows.mask)
    return replace(rows, fill=None) if ours else None


def _segments(low: Lowering, node: Node) -> Meaning | None:
    """`indices[:, 0]`."""
    indices = low.meaning(node.inputs[0])
    begin, end, step = (low.constant(node, i) for i in (1, 2, 3))
    if not isinstance(indices, Indices) or begin is None or end is None or step is None:
        return None
    masks = [int(node.attr[f"{name}_mask"].i) for name in ("begin", "end", "shrink_axis", "new_axis")]
    wanted = len(begin) == 2 and masks[0] & 1 and masks[1] & 1 and masks[2] == 2 and masks[3] == 0
    return Segments(indices.kept) if wanted and int(begin[1]) == 0 and list(step) == [1, 1] else None


def _pool_distinct(low: Lowering, node: Node) -> Meaning | None:
    """`SparseSegmentSum` and its like, over the rows of different ids."""
    rows, inverse = low.lower(node.inputs[0]), low.meaning(node.inputs[1])
    segments = low.meaning(node.inputs[2])
    if not isinstance(rows, Rows) or not isinstance(inverse, Inverse) or not isinstance(segments, Segments):
        return None
    if rows.shape[0] != inverse.distinct or not aligned(inverse.distinct.kept, segments.kept):
        return None
    every = len(node.inputs) == 4 and low.meaning(node.inputs[3]) == Sizes(("R",), scalar=True)
    if len(node.inputs) == 4 and not every:
        return None
    pool = _POOLS[node.op.removeprefix("SparseSegment").removesuffix("WithNumSegments")]
    # Without a number of segments, the result ends with the last row that has elements.
    return pooled(rows, inverse.distinct.kept, pool, "" if every else "last")


def _pool(low: Lowering, node: Node) -> Meaning | None:
    """`SegmentSum` and its like, over rows or weights."""
    value, segments = low.meaning(node.inputs[0]), low.meaning(node.inputs[1])
    unsorted = node.op.startswith("Unsorted")
    if not isinstance(segments, Segments):
        return None
    if unsorted and low.meaning(node.inputs[2]) != Sizes(("R",), scalar=True):
        return None
    pool = _POOLS[node.op.removeprefix("Unsorted").removeprefix("Segment")]
    if isinstance(value, Ones) and value.kept == segments.kept:
        return replace(value, total=True) if pool == "sum" else None
    weights = as_weights(value)
    if weights is not None and aligned(weights.kept, segments.kept):
        return replace(weights, total=True) if pool == "sum" and not weights.total else None
    dim = first_dim(value)
    if not isinstance(value, Rows) or not isinstance(dim, Kept) or not aligned(dim, segments.kept):
        return None
    if value.weights is not None and pool == "mean":
        return None  # it would be divided by the sum of the weights
    # TensorFlow gives the lowest number as the unsorted maximum of nothing.
    if unsorted:
        return pooled(value, dim, pool, "all" if pool == "max" else "")
    return pooled(value, dim, pool, "last")


def as_weights(value: Any) -> Weights | None:
    """A float feature's kept elements as weights."""
    if isinstance(value, Raw) and value.dtype == "float32" and isinstance(value.shape[0], Kept):
        return Weights(value.feature, value.shape[0])
    return value if isinstance(value, Weights) else None


SPARSE_RULES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_TESTS, (_test,)),
    "LogicalAnd": (_and,),
    "Where": (_where,),
    "GatherNd": (_gather_nd,),
    **dict.fromkeys(("GatherV2", "Gather"), (_gather,)),
    "Unique": (_unique,),
    "Unique:1": (_inverse,),
    "SparseReshape": (_sparse_reshape,),
    "SparseReshape:1": (_sparse_shape,),
    "SparseFillEmptyRows": (_filled_indices,),
    "SparseFillEmptyRows:1": (_filled_values,),
    "SparseFillEmptyRows:2": (_absent,),
    **dict.fromkeys(("Tile", "Reshape"), (_absent_everywhere,)),
    **dict.fromkeys(("Select", "SelectV2"), (_zero_where_absent,)),
    "StridedSlice": (_segments,),
    **dict.fromkeys(
        (f"SparseSegment{pool}{end}" for pool in ("Sum", "Mean", "SqrtN") for end in ("", "WithNumSegments")),
        (_pool_distinct,),
    ),
    **dict.fromkeys(
        ("SegmentSum", "SegmentMean", "SegmentMax", "UnsortedSegmentSum", "UnsortedSegmentMax"), (_pool,)
    ),
}
