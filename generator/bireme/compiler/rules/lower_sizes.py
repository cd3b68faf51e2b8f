"""Rules for the sizes of tensors, which sparse tensors and reshapes are made with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.sparse import Aside, Distinct, Flat, Indices, Kept, Positions, Segments, Sizes
from bireme.compiler.rules.values import Value

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["SIZE_RULES"]

Meaning = Value | Aside


def _sizes_of(low: Lowering, node: Node) -> Meaning | None:
    value = low.lower(node.inputs[0])
    return Sizes(value.shape) if value is not None else None


def _cast(low: Lowering, node: Node) -> Meaning | None:
    """Integers of another width."""
    value = low.meaning(node.inputs[0])
    integer = node.attr["DstT"].type in (tf.int32, tf.int64)
    return value if integer and isinstance(value, (Sizes, Segments, Indices, Positions)) else None


def _part_of_sizes(low: Lowering, node: Node) -> Meaning | None:
    """`Slice`, or a strided slice, of a shape."""
    sizes = low.meaning(node.inputs[0])
    bounds = [low.constant(node, i) for i in range(1, len(node.inputs))]
    if not isinstance(sizes, Sizes) or sizes.scalar or any(b is None or b.size != 1 for b in bounds):
        return None
    begin, second, *step = (int(b.reshape(-1)[0]) for b in bounds if b is not None)
    if node.op == "Slice":
        return Sizes(sizes.dims[begin:] if second < 0 else sizes.dims[begin : begin + second])
    if node.attr["shrink_axis_mask"].i:
        inside = -len(sizes.dims) <= begin < len(sizes.dims)
        return Sizes((sizes.dims[begin],), scalar=True) if inside else None
    first = None if node.attr["begin_mask"].i else begin
    last = None if node.attr["end_mask"].i else second
    known = not node.attr["new_axis_mask"].i and not node.attr["ellipsis_mask"].i
    return Sizes(sizes.dims[first : last : step[0]]) if known else None


def _joined_sizes(low: Lowering, node: Node) -> Meaning | None:
    """`Pack` or `ConcatV2` of sizes and constants."""
    parts = node.inputs if node.op == "Pack" else node.inputs[:-1]
    dims: list[Any] = []
    for ref in parts:
        constant, value = low.graph.constant(ref), low.meaning(ref)
        if constant is not None and constant.dtype.kind == "i":
            dims += [int(x) for x in constant.reshape(-1)]
        elif isinstance(value, Sizes) and value.scalar == (node.op == "Pack"):
            dims += value.dims
        else:
            return None
    return Sizes(tuple(dims)) if any(not isinstance(dim, int) for dim in dims) else None


def _product(low: Lowering, node: Node) -> Meaning | None:
    """Of sizes of which at most one is not 1."""
    sizes = low.meaning(node.inputs[0])
    if not isinstance(sizes, Sizes) or node.attr["keep_dims"].b:
        return None
    left = [dim for dim in sizes.dims if dim != 1]
    return Sizes((left[0] if left else 1,), scalar=True) if len(left) < 2 else None


def _reshape(low: Lowering, node: Node) -> Meaning | None:
    """To the shape that it has, dimensions of size 1 aside."""
    value, sizes, constant = low.meaning(node.inputs[0]), low.meaning(node.inputs[1]), low.constant(node, 1)
    target: tuple[Any, ...] = sizes.dims if isinstance(sizes, Sizes) else ()
    if constant is not None:
        target = tuple(int(x) for x in constant.reshape(-1))
    if isinstance(value, Positions):
        return value if target == (-1,) else None
    if value is None or isinstance(value, Aside) or not target:
        return None
    dims = value.shape
    if isinstance(dims[0], Flat):
        return replace(value, shape=target) if target == (*dims[0].dims, *dims[1:]) else None
    if target == (-1,) and dims == ("R", "L"):
        return replace(value, shape=(Flat(dims),))
    if target[0] == -1:
        target = (dims[0], *target[1:])
    known = dims[0] == "R" or isinstance(dims[0], (Kept, Distinct))
    same = [d for d in target if d != 1] == [d for d in dims if d != 1] and target[0] == dims[0]
    return replace(value, shape=target) if known and same and "L" not in dims else None


SIZE_RULES: dict[str, tuple[Any, ...]] = {
    "Shape": (_sizes_of,),
    "Cast": (_cast,),
    **dict.fromkeys(("Slice", "StridedSlice"), (_part_of_sizes,)),
    **dict.fromkeys(("Pack", "ConcatV2"), (_joined_sizes,)),
    "Prod": (_product,),
    "Reshape": (_reshape,),
}
