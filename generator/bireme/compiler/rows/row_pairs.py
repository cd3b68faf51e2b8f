"""Products of a user's tensor and an item's: one matrix per user instead of one row per pair.

A user's history h [L, D] against a target t [D] of every candidate is L·D numbers a candidate; written as a
matrix per user, `t·M` with M made of h, none of them is ever stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from bireme.compiler.rows.lifted import Context
from bireme.compiler.rows.row_values import Array, Lifted, Rest, Tensor, Term
from bireme_runtime.plan import Side

__all__ = ["both_vary", "contract", "pair_layer", "weighted_rows"]


def pair_layer(
    lift: Context, pairs: Sequence[tuple[Term, Array]], alone: Array | None, before: Rest
) -> Tensor | None:
    """`Σ (h ⊙ t)·W + t·V` as `t·M`, with M [D, L·K] made of the user's h once: `M[:, l] = diag(h_l)·W + V`.

    Args:
        lift: where nodes go.
        pairs: products h [L, D] of the user with the same t [1, D] of the item, and their weights [D, K], the
            product's scale included.
        alone: V [D, K], what t itself is multiplied with, if anything.
        before: shape of the products, (L, D).

    Returns:
        [L, K] for every user and candidate; None where the shapes are others.
    """
    target = pairs[0][0].item
    if len(before) != 2 or target is None or target.rest != (1, before[1]):
        return None
    if any(term.user is None or term.user.rest != before for term, _ in pairs):
        return None
    length, depth = before
    width = pairs[0][1].shape[1]
    writer = lift.writer
    total = ""
    for term, weights in pairs:
        assert term.user is not None
        turned = writer.node("Transpose", [term.user.name], perm=[0, 3, 2, 1])  # [users, D, L, 1]
        scaled = writer.node("Mul", [turned, writer.weight(weights[:, None, :])])
        total = writer.node("Add", [total, scaled]) if total else scaled
    if alone is not None:
        total = writer.node("Add", [total, writer.weight(alone[:, None, :])])
    matrix = writer.node("Reshape", [total, writer.axes(0, depth, length * width)])
    rows = writer.reshape(target, (depth,))
    product = Tensor(writer.node("MatMul", [rows.name, matrix]), "item", (length * width,))
    return writer.reshape(product, (length, width))


def contract(lift: Context, term: Term, axis: int, before: Rest) -> Tensor | None:
    """A pair summed over one of two dimensions, as a matrix product per user.

    `Σ_l w_l · h_l` is `w·h`, `Σ_d t_d · h_ld` is `t·hᵀ`.

    Args:
        lift: where nodes go.
        term: a user's tensor of shape `before` times an item's that has length 1 in the other dimension.
        axis: the dimension to sum over, 0 or 1.
        before: the pair's shape.

    Returns:
        [users, candidates, length of the other dimension], without the scale; None where the shapes differ.
    """
    user, item = term.user, term.item
    if user is None or item is None or len(before) != 2 or user.rest != before:
        return None
    summed, other = before[axis], before[1 - axis]
    if item.rest != ((summed, 1) if axis == 0 else (1, summed)):
        return None
    rows = lift.writer.reshape(item, (summed,))
    name = lift.writer.node("MatMul", [rows.name, _matrix(lift, user, turned=axis == 1)])
    return Tensor(name, "item", (other,))


def weighted_rows(lift: Context, product: Tensor, positions: Sequence[int], rest: Rest) -> Tensor | None:
    """`Σ_e w_e · x_e` of a gate w [E, 1] and its experts x [E, D] as `wᵀ·x`; None if it is something else."""
    if len(product.rest) != 2 or list(positions) != [0]:
        return None
    known = lift.products.get(product.name)
    if known is None:
        return None
    first, second = (lift.writer.compact(factor) for factor in known)
    gate, rows = (first, second) if first.rest[1] == 1 else (second, first)
    if gate.rest != (product.rest[0], 1) or rows.rest != product.rest:
        return None
    turned = lift.writer.reshape(gate, (1, gate.rest[0]))
    name = lift.writer.node("MatMul", [turned.name, rows.name])
    return lift.writer.reshape(Tensor(name, product.side, (1, rows.rest[1])), rest)


def _matrix(lift: Context, user: Tensor, turned: bool) -> str:
    """A user's [users, 1, rows, columns] as [users, rows, columns], or turned."""
    matrix = lift.writer.node("Squeeze", [user.name, lift.writer.axes(1)])
    return lift.writer.node("Transpose", [matrix], perm=[0, 2, 1]) if turned else matrix


def both_vary(lift: Context, left: Lifted, right: Lifted, rest: Rest) -> Tensor:
    """`left · right` for every row. Where one is the user's matrix, all candidates meet it in one product."""
    writer = lift.writer
    a, b = writer.write(left), writer.write(right)
    known = 0 not in (*a.rest, *b.rest, *rest) and len(a.rest) == 2
    if known and a.side == "item" and b.side == "user":
        # All rows of all candidates in a row: [users, candidates · rows, columns].
        flat = writer.node("Reshape", [a.name, writer.axes(0, -1, a.rest[1])])
        joint = writer.node("MatMul", [flat, _matrix(lift, b, turned=False)])
        return Tensor(writer.node("Reshape", [joint, writer.axes(0, -1, *rest)]), "item", rest)
    if known and a.side == "user" and b.side == "item" and b.rest[1] == 1:
        rows = writer.reshape(b, (b.rest[0],))
        product = Tensor(
            writer.node("MatMul", [rows.name, _matrix(lift, a, turned=True)]), "item", (a.rest[0],)
        )
        return writer.reshape(product, rest)
    side: Side = "item" if "item" in (a.side, b.side) else "user"
    return Tensor(writer.node("MatMul", [a.name, b.name]), side, rest)
