"""Rules for features that a model packs into one input [rows, K] and takes apart: `x[:, k]`, `x[:, k:n]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.compiler.graph import Node
from bireme.compiler.rules.lower_integers import as_integers
from bireme.compiler.rules.values import (
    Ids,
    Raw,
    Shape,
    Source,
    Text,
    Value,
    as_text,
    fixed_parts,
    raw_feature,
    value_feature,
)

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["ELEMENT_RULES"]


def _sliced(low: Lowering, node: Node) -> Value | None:
    """`x[:, k]` or `x[:, k : k + 1]`."""
    source = _sequence(low, node)
    bounds = [low.constant(node, index) for index in (1, 2, 3)]
    if source is None or any(bound is None or bound.size != 2 for bound in bounds):
        return None
    begin, end, step = ([int(x) for x in bound] for bound in bounds if bound is not None)
    masks = [node.attr[f"{name}_mask"].i for name in ("begin", "end", "shrink_axis", "new_axis", "ellipsis")]
    whole = masks[0] & masks[1] & 1 and step == [1, 1] and masks[3:] == [0, 0]
    length = _length(low, source)
    if not whole or length is None:
        return None
    if masks[2] == 2:
        return _element(source, begin[1], length, ("R",))
    first = 0 if masks[0] & 2 else begin[1] % length
    last = length if masks[1] & 2 else end[1] if end[1] >= 0 else end[1] + length
    alone = masks[2] == 0 and last - first == 1
    return _element(source, first, length, ("R", 1)) if alone else None


def _gathered(low: Lowering, node: Node) -> Value | None:
    """`gather(x, k, axis=1)`, of one k or a vector of one."""
    source, index = _sequence(low, node), low.constant(node, 1)
    length = _length(low, source) if source is not None else None
    if source is None or length is None or index is None or index.size != 1 or index.ndim > 1:
        return None
    if low.scalar(node, 2) not in (1, -1) or node.attr["batch_dims"].i or int(index.reshape(-1)[0]) < 0:
        return None
    return _element(source, int(index.reshape(-1)[0]), length, ("R", *index.shape))


def _sequence(low: Lowering, node: Node) -> Source | None:
    """A node's first input, if it is a sequence of integers or strings."""
    value = low.lower(node.inputs[0])
    source = as_text(value) or (as_integers(value) if isinstance(value, (Raw, Ids)) else None)
    return source if source is not None and source.shape == ("R", "L") else None


def _length(low: Lowering, source: Source) -> int | None:
    """Elements of each row, if all have as many."""
    parts = fixed_parts(source)
    return parts if parts is not None else low.lengths.get(value_feature(source))


def _element(source: Source, index: int, length: int, shape: Shape) -> Value | None:
    if not -length <= index < length:
        return None
    sources = () if raw_feature(source) is not None else (source,)
    how: tuple[Any, ...] = (index % length, length)
    if as_text(source) is not None:
        return Text(source.feature, "element", how, shape, sources)
    signs = isinstance(source, Ids) and source.non_negative
    return Ids(source.feature, "element", how, shape, signs, sources=sources)


ELEMENT_RULES: dict[str, tuple[Any, ...]] = {"StridedSlice": (_sliced,), "GatherV2": (_gathered,)}
