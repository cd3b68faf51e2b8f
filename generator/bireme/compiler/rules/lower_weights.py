"""Rules for weighted sums over kept elements, as `embedding_lookup_sparse` makes them of `sp_weights`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bireme.compiler.graph import Node
from bireme.compiler.rules.lower_sparse import as_weights
from bireme.compiler.rules.sparse import Aside, Kept, Weights, aligned, first_dim
from bireme.compiler.rules.values import Raw, Rows, Value, same_mask

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["WEIGHT_RULES"]

Meaning = Value | Aside


def _weighted(low: Lowering, node: Node) -> Meaning | None:
    """`rows · weights`, both of kept elements."""
    for index in (0, 1):
        rows, value = low.lower(node.inputs[index]), low.meaning(node.inputs[1 - index])
        weights, dim = as_weights(value), first_dim(rows)
        if isinstance(rows, Rows) and isinstance(value, Raw) and weights is not None:
            fits = isinstance(dim, Kept) and aligned(dim, weights.kept) and len(rows.shape) == 2
            if fits and value.shape[1:] == (1,) and rows.weights is None and rows.pool is None:
                return replace(rows, weights=weights.feature)
    return None


def _squared(low: Lowering, node: Node) -> Meaning | None:
    """Squares of weights: `square(w)`, `w · w` or `pow(w, 2)`."""
    weights = as_weights(low.meaning(node.inputs[0]))
    square = node.op == "Square" or (node.op == "Mul" and node.inputs[0] == node.inputs[1])
    square = square or (node.op == "Pow" and low.scalar(node, 1) == 2)
    if weights is None or weights.total or weights.power != 1 or not square:
        return None
    return replace(weights, power=2)


def _rooted(low: Lowering, node: Node) -> Meaning | None:
    weights = low.meaning(node.inputs[0])
    known = isinstance(weights, Weights) and weights.total and weights.power == 2 and not weights.root
    return replace(weights, root=True) if known and isinstance(weights, Weights) else None


def _normalised(low: Lowering, node: Node) -> Meaning | None:
    """A weighted sum over the sum of its weights, or over the root of that of their squares."""
    rows, weights = low.lower(node.inputs[0]), low.meaning(node.inputs[1])
    if not isinstance(rows, Rows) or not isinstance(weights, Weights) or rows.pool != "sum":
        return None
    if not weights.total or rows.weights != weights.feature or weights.root != (weights.power == 2):
        return None
    ours = rows.mask is None if weights.kept.mask is None else _same_elements(rows, weights.kept)
    return replace(rows, pool="sqrtn" if weights.root else "mean") if ours else None


def _same_elements(rows: Rows, kept: Kept) -> bool:
    assert kept.mask is not None
    return same_mask(rows.mask, kept.mask) or (kept.whole and kept.key[0] == rows.weights)


WEIGHT_RULES: dict[str, tuple[Any, ...]] = {
    "Mul": (_weighted, _squared),
    **dict.fromkeys(("Square", "Pow"), (_squared,)),
    "Sqrt": (_rooted,),
    "DivNoNan": (_normalised,),
}
