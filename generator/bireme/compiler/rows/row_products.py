"""Matrix products with weights, [rows, …] to [users, candidates, …]: where the user side is computed once.

`MatMul(concat(user, items), W)` is `user·Wu + items·Wi`, and what is added behind it joins one of the two.
In the concat of an attention, `[h, t, h−t, h⊙t]·W` over a user's history h and a target t, the rows of W that
meet the same tensor are added up first: `h·(W1+W3) + t·(W2−W3) + (h⊙t)·W4`. What an item only weighs,
`(a·h)·W`, is `a·(h·W)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import onnx

from bireme.compiler.rows.lifted import Attributes, Context
from bireme.compiler.rows.row_blocks import join, map_blocks, place
from bireme.compiler.rows.row_pairs import both_vary, pair_layer
from bireme.compiler.rows.row_sums import add_weight, total
from bireme.compiler.rows.row_values import (
    Array,
    Const,
    Lifted,
    Part,
    Rest,
    Segments,
    Slice,
    Stretched,
    Sum,
    Tensor,
    Term,
)

__all__ = ["gemm", "matmul", "times"]

#: Up to so many pieces, whose sum is narrower than they are together, are not put together first.
_FEW = 4


def matmul(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    """A dense layer, or a product of two tensors for every row."""
    left, right = inputs
    if isinstance(left, Const):
        return None
    if not isinstance(right, Const):
        # Both vary: a batched product per row, fine as long as rows stay a batch dimension.
        if len(left.rest) != len(right.rest) or len(left.rest) < 2:
            return None
        return both_vary(lift, left, right, lift.rest(node))
    if right.value.ndim != 2 or not left.rest:
        return None
    return times(lift, left, right.value, lift.rest(node))


def gemm(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes) -> Lifted | None:
    """A dense layer with its bias."""
    left, weights = inputs[0], inputs[1]
    if attributes.get("transA", 0) or not isinstance(weights, Const) or isinstance(left, Const):
        return None
    matrix = weights.value.T if attributes.get("transB", 0) else weights.value
    product = times(lift, left, matrix * np.float32(attributes.get("alpha", 1.0)), lift.rest(node))
    if len(inputs) < 3:
        return product
    bias = inputs[2]
    if not isinstance(bias, Const) or bias.value.size not in (1, matrix.shape[1]):
        return None
    shift = bias.value.reshape(-1) * np.float32(attributes.get("beta", 1.0))
    added = add_weight(lift, product, shift) if isinstance(product, Sum) else None
    if added is not None:
        return added
    tensor = lift.writer.write(product)
    name = lift.writer.node("Add", [tensor.name, lift.writer.weight(shift)])
    return Tensor(name, tensor.side, tensor.rest)


def times(
    lift: Context, left: Tensor | Part | Segments, weights: Array, rest: Rest
) -> Tensor | Stretched | Sum | Segments:
    """`left · weights`, with every part of `left` on its own side.

    Args:
        lift: where nodes go.
        left: [..., K].
        weights: [K, width].
        rest: shape of the result.
    """
    if 0 not in left.rest and 0 not in rest:
        if isinstance(left, Segments) and left.mixed and left.axis != len(left.rest) - 1:
            width = weights.shape[1]
            blocks = map_blocks(
                lift,
                [left],
                lambda _, tensors: _dense(lift, tensors[0], weights),
                lambda part: (*part[:-1], width),
            )
            if blocks is not None:
                return blocks
        if isinstance(left, Segments) and left.axis == len(left.rest) - 1:
            rows = [weights[a:b] for a, b in pairwise(left.starts)]
            taken_apart = _taken_apart(lift, list(zip(left.parts, rows, strict=True)), left.rest, rest)
            if taken_apart is not None:
                return taken_apart
        if isinstance(left, Sum) and not _whole_item(left):
            taken_apart = _taken_apart(lift, [(left, weights)], left.rest, rest)
            if taken_apart is not None:
                return taken_apart
        if isinstance(left, Stretched) and left.tensor.rest[-1] == left.rest[-1]:
            return Stretched(_dense(lift, left.tensor, weights), rest)
    tensor = lift.writer.write(left)
    name = lift.writer.node("MatMul", [tensor.name, lift.writer.weight(weights)])
    return Tensor(name, tensor.side, rest)


def _whole_item(value: Sum) -> bool:
    """Whether every candidate has all of it anyway: added up first, it is multiplied only once."""
    return any(term.user is None and term.item.rest == value.rest for term in value.terms if term.item)


def _dense(lift: Context, tensor: Tensor, weights: Array) -> Tensor:
    name = lift.writer.node("MatMul", [tensor.name, lift.writer.weight(weights)])
    return Tensor(name, tensor.side, (*tensor.rest[:-1], weights.shape[1]))


@dataclass
class _Pieces:
    """What a product falls apart into: tensors and the rows of the weights that they meet.

    Args:
        alone: (side, dimensions before the last) → part → its rows, added up where it occurs twice.
        pairs: a product of both sides and its rows.
    """

    alone: dict[tuple[str, Rest], dict[Part, Array]] = field(default_factory=dict)
    pairs: list[tuple[Term, Array]] = field(default_factory=list)

    def add(self, part: Part, rows: Array) -> None:
        """One part of the left side."""
        if isinstance(part, Sum):
            for term in part.terms:
                scaled = rows * np.float32(term.scale)
                if len(term.factors) == 2:
                    self.pairs.append((term, scaled))
                else:
                    self._alone(term.factors[0], scaled)
        else:
            self._alone(part.tensor if isinstance(part, Stretched) else part, rows)

    def _alone(self, part: Part, rows: Array) -> None:
        group = self.alone.setdefault((part.side, part.rest[:-1]), {})
        group[part] = group[part] + rows if part in group else rows


def _taken_apart(
    lift: Context, parts: list[tuple[Part, Array]], before: Rest, after: Rest
) -> Tensor | Stretched | Sum | None:
    """The product as a sum over sides; None where a part is not what it needs to be for that."""
    pieces = _Pieces()
    for part, rows in parts:
        # A slice of several dimensions merges with no other; written, it is known to be the same elsewhere.
        whole = _whole_item(part) if isinstance(part, Sum) else isinstance(part, Slice) and len(part.rest) > 1
        pieces.add(lift.writer.write(part) if whole else part, rows)
    if any(part.rest[-1] != len(rows) for group in pieces.alone.values() for part, rows in group.items()):
        return None  # it repeats along the very dimension that is summed over
    terms: list[Term] = []
    weighed = [(term, rows) for term, rows in pieces.pairs if _is_weighed(term, len(rows))]
    pairs = [pair for pair in pieces.pairs if not _is_weighed(pair[0], len(pair[1]))]
    for target in dict.fromkeys(term.item for term, _ in pairs):
        assert target is not None
        mine = [(term, rows) for term, rows in pairs if term.item == target]
        group = pieces.alone.get(("item", target.rest[:-1]), {})
        layer = pair_layer(lift, mine, group.pop(target, None), (*before[:-1], len(mine[0][1])))
        if layer is None:
            return None
        terms.append(Term(1.0, item=layer))
    for term, rows in weighed:
        assert term.user is not None
        terms.append(Term(1.0, user=_dense(lift, term.user, rows), item=term.item))
    for group in pieces.alone.values():
        terms.extend(_side(lift, group, after[-1]))
    return total(lift, terms, after)


def _is_weighed(term: Term, depth: int) -> bool:
    """Whether it is a user's vector times a number of the item's: `(a·u)·W = a·(u·W)`."""
    user, item = term.user, term.item
    return user is not None and item is not None and user.rest[-1] == depth > item.rest[-1] == 1


def _side(lift: Context, group: dict[Part, Array], width: int) -> list[Term]:
    """Parts of one side and shape times their rows, put together first where that is less to move."""
    merged = _merged(group)
    narrow = width * len(merged) < sum(part.rest[-1] for part, _ in merged)
    if 1 < len(merged) <= _FEW and narrow and merged[0][0].side == "item":
        pieces = [(lift.writer.write(part), rows) for part, rows in merged]
    elif merged:
        whole = Segments(tuple(part for part, _ in merged), len(merged[0][0].rest) - 1)
        pieces = [(lift.writer.write(whole), np.concatenate([rows for _, rows in merged]))]
    else:
        return []
    products = [_dense(lift, tensor, rows) for tensor, rows in pieces]
    return [Term(1.0, **{product.side: product}) for product in products]


def _merged(group: dict[Part, Array]) -> list[tuple[Part, Array]]:
    """Parts in the order that they lie in, neighbours as one, with their rows."""
    result: list[tuple[Part, Array]] = []
    for part, rows in sorted(group.items(), key=lambda entry: place(entry[0])):
        both = join([result[-1][0], part], len(part.rest) - 1) if result else None
        if both is None or isinstance(both, Segments):
            result.append((part, rows))
        else:
            result[-1] = both, np.concatenate([result[-1][1], rows])
    return result
