"""Rules for sparse tensors with one element in every row, which feature columns make of a bucketized number.

Their indices are the row's number and 0, built of `range`, `tile`, `stack` and `transpose`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.sparse import Aside, Indices, Kept, Sizes
from bireme.compiler.rules.values import Ids, Masked, Raw, Value, as_ids, both

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["PLACE_RULES"]

Meaning = Value | Aside
#: The one element of each row: all of them.
_ALL = Kept(("one a row",), None, ("R", 1))
#: Stands for the elements of a tensor that is not sparse.
_DENSE = Kept(("dense",), None, ("R", 1))


@dataclass(frozen=True)
class Place(Aside):
    """For each row its number ("row"), 0 ("zero"), or both ("pair": [R, 2], or [2, R] if `across`)."""

    kind: Literal["row", "zero", "pair"]
    across: bool = False


def _rows(low: Lowering, node: Node) -> Meaning | None:
    """`range(rows)`."""
    until = low.meaning(node.inputs[1])
    plain = low.scalar(node, 0) == 0 and low.scalar(node, 2) == 1
    return Place("row") if plain and until == Sizes(("R",), scalar=True) else None


def _tiled(low: Lowering, node: Node) -> Meaning | None:
    """A 0 for each row, or the rows' numbers once."""
    place, constant, times = low.meaning(node.inputs[0]), low.constant(node, 0), low.meaning(node.inputs[1])
    if constant is not None and constant.shape == (1,) and constant[0] == 0 and times == Sizes(("R",)):
        return Place("zero")
    once = low.constant(node, 1)
    return place if isinstance(place, Place) and once is not None and (np.asarray(once) == 1).all() else None


def _same(low: Lowering, node: Node) -> Meaning | None:
    """A column of places, or a vector of them again; integers of another width."""
    place = low.meaning(node.inputs[0])
    if not isinstance(place, Place) or (place.kind == "pair" and node.op != "Cast"):
        return None
    if node.op == "Cast" and node.attr["DstT"].type not in (tf.int32, tf.int64):
        return None
    if node.op == "Reshape" and (low.constant(node, 1) is None or list(low.constant(node, 1)) != [-1]):  # type: ignore[arg-type]
        return None
    return Indices(_ALL) if place.kind == "pair" and not place.across else place


def _paired(low: Lowering, node: Node) -> Meaning | None:
    """`stack((rows, zeros))`."""
    places = [low.meaning(ref) for ref in node.inputs]
    return Place("pair", across=True) if places == [Place("row"), Place("zero")] else None


def _transposed(low: Lowering, node: Node) -> Meaning | None:
    pair = low.meaning(node.inputs[0])
    across = isinstance(pair, Place) and pair.across and low.constant(node, 1) is not None
    return Place("pair") if across and list(low.constant(node, 1)) == [1, 0] else None  # type: ignore[arg-type]


def _nothing(low: Lowering, node: Node) -> Meaning | None:
    """`constant · 0`."""
    for index in (0, 1):
        if low.meaning(node.inputs[index]) == Place("zero") and low.constant(node, 1 - index) is not None:
            return Place("zero")
    return None


def _values(low: Lowering, node: Node) -> Meaning | None:
    """`ids + 0`: the values of the sparse tensor."""
    for index in (0, 1):
        ids = as_ids(low.lower(node.inputs[index]))
        if ids is not None and ids.shape == ("R",) and low.meaning(node.inputs[1 - index]) == Place("zero"):
            return replace(ids, shape=(_ALL,))
    return None


def _crossed(low: Lowering, node: Node) -> tuple[Kept, Ids] | None:
    """The hashed cross of tensors with at most one element a row: there where all have theirs."""
    count = int(node.attr["N"].i)
    if not count or not node.attr["hashed_output"].b:
        return None
    indices = [low.meaning(ref) for ref in node.inputs[:count]]
    values = [low.lower(ref) for ref in (*node.inputs[count : 2 * count], *node.inputs[3 * count :])]
    wanted: list[Any] = [x.kept if isinstance(x, Indices) else None for x in indices]
    masks: list[Masked] = []
    sources: list[Raw | Ids] = []
    for kept, value in zip_longest(wanted, values, fillvalue=_DENSE):
        if not isinstance(value, (Raw, Ids)) or not isinstance(kept, Kept) or kept.padded != ("R", 1):
            return None
        if value.shape != (("R", 1) if kept is _DENSE else (kept,)):
            return None
        sources.append(replace(value, shape=("R", 1)))
        masks += [kept.mask] if kept.mask is not None else []
    mask = masks[0] if masks else None
    for other in masks[1:]:
        mask = both(other, mask)
    kept = Kept(("cross", mask.key if mask is not None else None), mask, ("R", 1))
    buckets = int(node.attr["num_buckets"].i) or np.iinfo(np.int64).max
    parameters = (int(buckets), int(node.attr["hash_key"].i))
    return kept, Ids(sources[0].feature, "cross", parameters, (kept,), True, sources=tuple(sources))


def _cross_indices(low: Lowering, node: Node) -> Meaning | None:
    found = _crossed(low, node)
    return Indices(found[0]) if found is not None else None


def _cross_values(low: Lowering, node: Node) -> Meaning | None:
    found = _crossed(low, node)
    return found[1] if found is not None else None


def _cross_shape(low: Lowering, node: Node) -> Meaning | None:
    return Sizes(("R", 1)) if _crossed(low, node) is not None else None


PLACE_RULES: dict[str, tuple[Any, ...]] = {
    "Range": (_rows,),
    "SparseCross": (_cross_indices,),
    "SparseCross:1": (_cross_values,),
    "SparseCross:2": (_cross_shape,),
    "Tile": (_tiled,),
    **dict.fromkeys(("ExpandDims", "Reshape", "Cast"), (_same,)),
    "Pack": (_paired,),
    "Transpose": (_transposed,),
    "Mul": (_nothing,),
    **dict.fromkeys(("Add", "AddV2"), (_values,)),
}
