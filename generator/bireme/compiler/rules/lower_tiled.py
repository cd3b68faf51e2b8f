"""Rules for the pooling that DeepCTR writes: the mask repeated for every column, the count plus a trifle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.compiler.graph import Node
from bireme.compiler.rules.sparse import Aside
from bireme.compiler.rules.values import Count, Masked, Rows, Value, admit

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["TILED_RULES"]


@dataclass(frozen=True)
class Tiled(Aside):
    """A mask [rows, L, 1] as 0 and 1, repeated to `width` columns: no columns of their own could carry it."""

    mask: Masked
    width: int


def _tile(low: Lowering, node: Node) -> Aside | None:
    """`tile(mask, [1, 1, width])`."""
    mask, multiples = low.lower(node.inputs[0]), low.constant(node, 1)
    if not isinstance(mask, Masked) or multiples is None or mask.shape[-1] != 1 or len(mask.shape) < 3:
        return None
    once = multiples.size == len(mask.shape) and bool((multiples[:-1] == 1).all())
    return Tiled(mask, int(multiples[-1])) if once else None


def _times_tiled(low: Lowering, node: Node) -> Value | None:
    """`rows · tile(mask)`."""
    for index in (0, 1):
        tiled, rows = low.meaning(node.inputs[index]), low.lower(node.inputs[1 - index])
        if isinstance(tiled, Tiled) and isinstance(rows, Rows) and rows.shape[-1] == tiled.width:
            return admit(rows, tiled.mask)
    return None


def _plus_trifle(low: Lowering, node: Node) -> Value | None:
    """`count + 1e-8`: in FP32 a count of 1 or more stays what it is, so that this is a floor."""
    for index in (0, 1):
        count, trifle = low.lower(node.inputs[index]), low.scalar(node, 1 - index)
        if isinstance(count, Count) and not count.root and not count.floor and isinstance(trifle, np.float32):
            unchanged = trifle > 0 and np.float32(1) + trifle == np.float32(1)
            return replace(count, floor=float(trifle)) if unchanged else None
    return None


TILED_RULES: dict[str, tuple[Any, ...]] = {
    "Tile": (_tile,),
    "Mul": (_times_tiled,),
    **dict.fromkeys(("Add", "AddV2"), (_plus_trifle,)),
}
