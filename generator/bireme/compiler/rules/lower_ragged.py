"""Rules for ragged tensors: other forms of them, and means. What hangs on their splits alone: ragged.py."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bireme.compiler.graph import Node
from bireme.compiler.rules.lower_sparse import compared
from bireme.compiler.rules.sparse import Aside, Indices, Kept, Ones, Padded, Sizes, Splits, first_dim
from bireme.compiler.rules.values import Ids, Raw, Rows, Value, both, same_mask

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["RAGGED_RULES"]

Meaning = Value | Aside


def _ragged_sparse(low: Lowering, node: Node) -> Kept | None:
    splits, value = low.meaning(node.inputs[0]), low.lower(node.inputs[-1])
    if not isinstance(splits, Splits) or len(node.inputs) != 2 or first_dim(value) != splits.kept:
        return None
    return splits.kept


def _ragged_indices(low: Lowering, node: Node) -> Meaning | None:
    kept = _ragged_sparse(low, node)
    return Indices(kept) if kept is not None else None


def _ragged_values(low: Lowering, node: Node) -> Meaning | None:
    return low.lower(node.inputs[-1]) if _ragged_sparse(low, node) is not None else None


def _ragged_shape(low: Lowering, node: Node) -> Meaning | None:
    kept = _ragged_sparse(low, node)
    return Sizes(kept.padded) if kept is not None else None


def _to_tensor(low: Lowering, node: Node) -> Meaning | None:
    """`RaggedTensor.to_tensor`: rows filled up to the longest of the batch, so a mask must follow."""
    shape, value, default = low.scalar(node, 0), low.lower(node.inputs[1]), low.scalar(node, 2)
    splits = low.meaning(node.inputs[3])
    if shape != -1 or not isinstance(splits, Splits) or not isinstance(value, (Raw, Ids)) or default is None:
        return None
    if len(node.inputs) != 4 or value.shape != (splits.kept,):
        return None
    return replace(value, shape=("R", Padded(splits.kept, default)))


def _padding_test(low: Lowering, node: Node) -> Meaning | None:
    """`padded != its default`."""
    mask = compared(low, node)
    if mask is None or len(mask.shape) != 2 or not isinstance(mask.shape[1], Padded):
        return None
    padded, value = mask.shape[1], mask.value.encode() if isinstance(mask.value, str) else mask.value
    return both(mask, padded.kept.mask) if mask.test == "ne" and value == padded.default else None


def _ones(low: Lowering, node: Node) -> Meaning | None:
    """`ones_like` of kept elements: what a mean counts."""
    value = low.lower(node.inputs[0])
    dim = first_dim(value)
    return Ones(dim) if isinstance(dim, Kept) and isinstance(value, (Raw, Ids, Rows)) else None


def _filled_with_ones(low: Lowering, node: Node) -> Meaning | None:
    """`ones_like`, as the shape of kept elements filled with 1."""
    sizes = low.meaning(node.inputs[0])
    dim = sizes.dims[0] if isinstance(sizes, Sizes) and not sizes.scalar else None
    return Ones(dim) if isinstance(dim, Kept) and low.scalar(node, 1) == 1 else None


def _mean_of_ragged(low: Lowering, node: Node) -> Meaning | None:
    """A sum over a sum of ones."""
    rows, ones = low.lower(node.inputs[0]), low.meaning(node.inputs[1])
    if not isinstance(rows, Rows) or not isinstance(ones, Ones) or not ones.total:
        return None
    if rows.pool != "sum" or rows.weights is not None or ones.kept.mask is None:
        return None
    if rows.fill is not None or ones.kept.fill is not None:
        return None
    if not same_mask(rows.mask, ones.kept.mask):
        return None
    return replace(rows, pool="mean", present="all" if node.op == "RealDiv" else rows.present)


RAGGED_RULES: dict[str, tuple[Any, ...]] = {
    "RaggedTensorToSparse": (_ragged_indices,),
    "RaggedTensorToSparse:1": (_ragged_values,),
    "RaggedTensorToSparse:2": (_ragged_shape,),
    "RaggedTensorToTensor": (_to_tensor,),
    "NotEqual": (_padding_test,),
    "OnesLike": (_ones,),
    "Fill": (_filled_with_ones,),
    **dict.fromkeys(("RealDiv", "DivNoNan"), (_mean_of_ragged,)),
}
