"""Reductions from [rows, …] to [users, candidates, …]: a sum over both sides is one sum a side."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import onnx

from bireme.compiler.rows.lifted import Attributes, Context
from bireme.compiler.rows.row_axes import axes_of, shift
from bireme.compiler.rows.row_blocks import map_blocks, place
from bireme.compiler.rows.row_pairs import contract, weighted_rows
from bireme.compiler.rows.row_sums import total
from bireme.compiler.rows.row_values import Const, Lifted, Rest, Segments, Stretched, Sum, Tensor, Term
from bireme_runtime.plan import Side

__all__ = ["REDUCTIONS", "reduce"]

# fmt: off
REDUCTIONS = (
    "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)
# fmt: on
_LINEAR = ("ReduceSum", "ReduceMean")


def reduce(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """A reduction over other axes than the rows."""
    value, axes = inputs[0], axes_of(inputs, attributes)
    if isinstance(value, Const) or not axes:
        return None
    shifted = [shift(axis, 1 + len(value.rest)) for axis in axes]
    if None in shifted:
        return None
    positions = sorted({axis - 2 for axis in shifted if axis is not None})
    keep = bool(attributes.get("keepdims", 1))
    if 0 not in value.rest:
        lazy: Lifted | None = None
        if isinstance(value, Segments) and value.mixed:
            lazy = _of_concat(lift, node, value, positions, keep)
        elif isinstance(value, (Sum, Stretched)) and node.op_type in _LINEAR:
            lazy = _of_sum(lift, node, value, positions, keep)
        elif isinstance(value, Tensor) and node.op_type == "ReduceSum":
            lazy = weighted_rows(lift, value, positions, lift.rest(node))
        if lazy is not None:
            return lazy
    return _reduced(lift, node.op_type, lift.writer.write(value), positions, keep, lift.rest(node))


def _reduced(lift: Context, op: str, tensor: Tensor, positions: list[int], keep: bool, rest: Rest) -> Tensor:
    axes = [position + 2 for position in positions]
    if op == "ReduceSum":
        name = lift.writer.node(op, [tensor.name, lift.writer.axes(*axes)], keepdims=int(keep))
    else:
        name = lift.writer.node(op, [tensor.name], axes=axes, keepdims=int(keep))
    return Tensor(name, tensor.side, rest)


def _after(rest: Rest, positions: list[int], keep: bool) -> Rest:
    ones = tuple(1 if i in positions else size for i, size in enumerate(rest))
    return ones if keep else tuple(size for i, size in enumerate(rest) if i not in positions)


def _of_concat(
    lift: Context, node: onnx.NodeProto, value: Segments, positions: list[int], keep: bool
) -> Lifted | None:
    """Side by side: over the concat's own axis the two sides' results are added."""
    op = node.op_type
    if value.axis not in positions:
        axis = value.axis if keep else value.axis - sum(position < value.axis for position in positions)
        return map_blocks(
            lift,
            [value],
            lambda _, tensors: _reduced(
                lift, op, tensors[0], positions, keep, _after(tensors[0].rest, positions, keep)
            ),
            lambda rest: _after(rest, positions, keep),
            axis,
        )
    if op not in (*_LINEAR, "ReduceSumSquare"):
        return None
    factor = 1.0
    if op == "ReduceMean":
        op, factor = "ReduceSum", 1.0 / prod(value.rest[position] for position in positions)
    terms = []
    sides: tuple[Side, Side] = ("user", "item")
    for side in sides:
        parts = sorted((part for part in value.parts if part.side == side), key=place)
        block = lift.writer.write(Segments(tuple(parts), value.axis))
        reduced = _reduced(lift, op, block, positions, keep, _after(block.rest, positions, keep))
        terms.append(Term(factor, **{side: reduced}))
    return total(lift, terms, lift.rest(node))


def _of_sum(
    lift: Context, node: onnx.NodeProto, value: Sum | Stretched, positions: list[int], keep: bool
) -> Lifted | None:
    """Term by term; a product of both sides becomes a matrix product."""
    rest = lift.rest(node)
    mean = 1.0 / prod(value.rest[position] for position in positions) if node.op_type == "ReduceMean" else 1.0
    terms = value.terms if isinstance(value, Sum) else (Term(1.0, **{value.side: value.tensor}),)
    results = []
    for term in terms:
        if len(term.factors) == 2:
            product = contract(lift, term, positions[0], value.rest) if len(positions) == 1 else None
            if product is None:
                return None
            results.append(Term(mean * term.scale, item=lift.writer.reshape(product, rest)))
            continue
        factor = term.factors[0]
        # Where it only repeats, summing multiplies.
        times = prod(value.rest[i] for i in positions if factor.rest[i] == 1)
        own = _after(factor.rest, positions, keep)
        if any(factor.rest[i] != 1 for i in positions):
            reduced = _reduced(lift, "ReduceSum", factor, positions, keep, own)
        else:
            reduced = lift.writer.reshape(factor, own)
        results.append(replace(term, scale=mean * times * term.scale, **{factor.side: reduced}))
    return total(lift, results, rest)
