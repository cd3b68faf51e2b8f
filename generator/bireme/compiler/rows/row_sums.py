"""Sums of a user part and an item part that stay apart: adding them is the broadcast, so it comes last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from bireme.compiler.rows.lifted import Context
from bireme.compiler.rows.row_values import (
    Array,
    Const,
    Lifted,
    Part,
    Rest,
    Slice,
    Stretched,
    Sum,
    Tensor,
    Term,
    broadcast,
)

__all__ = ["add", "add_factor", "add_weight", "as_terms", "is_number", "multiply", "scale", "total"]


def as_terms(lift: Context, value: Lifted) -> list[Term]:
    """A value as terms of a sum."""
    if isinstance(value, Sum):
        return list(value.terms)
    tensor = lift.writer.compact(value)
    return [Term(1.0, **{tensor.side: tensor})]


def total(lift: Context, terms: Iterable[Term], rest: Rest) -> Tensor | Stretched | Sum:
    """The sum of terms: written where all are of one side, else lazy, with each side's own terms added up.

    Args:
        lift: where nodes go.
        terms: at least one.
        rest: shape of the sum.
    """
    products: dict[tuple[str, ...], Term] = {}
    for term in terms:
        key = tuple(factor.name for factor in term.factors)
        known = products.get(key)
        products[key] = replace(term, scale=term.scale + known.scale) if known else term
    kept = [term for term in products.values() if term.scale != 0.0] or list(products.values())[:1]
    alone: dict[tuple[str, Rest], list[Term]] = {}
    pairs = []
    for term in kept:
        if len(term.factors) == 2:
            pairs.append(term)
        else:
            alone.setdefault((term.factors[0].side, term.factors[0].rest), []).append(term)
    collected = [_collected(lift, group) for group in alone.values()]
    if not pairs and len({term.factors[0].side for term in collected}) == 1:
        tensor = lift.writer.compact(Sum(tuple(collected), rest))
        return tensor if tensor.rest == rest else Stretched(tensor, rest)
    return Sum((*collected, *pairs), rest)


def _collected(lift: Context, terms: list[Term]) -> Term:
    """Terms of one side and shape as one."""
    if len(terms) == 1:
        return terms[0]
    tensor = lift.writer.compact(Sum(tuple(terms), terms[0].factors[0].rest))
    return Term(1.0, **{tensor.side: tensor})


def add(lift: Context, left: Lifted, right: Lifted, sign: float, rest: Rest) -> Lifted | None:
    """`left ± right` if it is worth keeping apart, else None."""
    values = (left, right)
    lazy = any(isinstance(value, Sum) for value in values)
    if (
        not lazy
        and len({value.side for value in values if isinstance(value, (Tensor, Slice, Stretched))}) < 2
    ):
        return None
    terms = as_terms(lift, left) + [replace(term, scale=sign * term.scale) for term in as_terms(lift, right)]
    return total(lift, terms, rest)


def add_weight(lift: Context, value: Sum, weight: Array) -> Sum | None:
    """`value + weight`, the weight on the user side; None where the user has no term of a fitting shape."""
    for index, term in enumerate(value.terms):
        if term.user is None or term.item is not None:
            continue
        shape = broadcast(term.user.rest, weight.shape)
        if shape != term.user.rest:
            continue
        signed = weight if term.scale == 1.0 else weight / np.float32(term.scale)
        name = lift.writer.node("Add", [term.user.name, lift.writer.weight(signed)])
        added = replace(term, user=Tensor(name, "user", shape))
        return Sum((*value.terms[:index], added, *value.terms[index + 1 :]), value.rest)
    return None


def add_factor(lift: Context, product: Lifted, factor: Lifted, rest: Rest) -> Tensor | None:
    """`x·y + x` as `x·(y + 1)` where the 1 joins the user's part of y: one trip over the candidates less.

    This is a cross layer's residual.
    """
    if not isinstance(product, Tensor) or isinstance(factor, Const) or product.rest != rest:
        return None
    known = lift.products.get(product.name, ())
    for same, other in (known, known[::-1]) if known else ():
        if same != factor or not isinstance(other, Sum) or other.rest != rest:
            continue
        grown = add_weight(lift, other, np.ones((), np.float32))
        if grown is not None:
            factors = (lift.writer.compact(same), lift.writer.compact(grown))
            return Tensor(lift.writer.node("Mul", [one.name for one in factors]), "item", rest)
    return None


def scale(value: Sum, factor: float) -> Sum:
    """`factor · value`."""
    return Sum(tuple(replace(term, scale=factor * term.scale) for term in value.terms), value.rest)


def multiply(lift: Context, left: Part, right: Part, rest: Rest) -> Sum | None:
    """A product of the two sides that a sum or a dense layer behind it may turn into a matrix product."""
    if len(rest) < 2 or left.side == right.side:
        return None
    user, item = (left, right) if left.side == "user" else (right, left)
    factor = lift.writer.compact(user)
    if isinstance(item, Sum) and len(item.terms) == 1:
        (term,) = item.terms
        if term.user is not None:  # user factors meet once a user
            name = lift.writer.node("Mul", [term.user.name, factor.name])
            factor = Tensor(name, "user", broadcast(term.user.rest, factor.rest))
        return Sum((replace(term, user=factor),), rest)
    return Sum((Term(1.0, user=factor, item=lift.writer.compact(item)),), rest)


def is_number(value: Lifted) -> bool:
    """Whether it is a single FP32 weight."""
    return isinstance(value, Const) and value.value.size == 1 and value.value.dtype == np.float32
