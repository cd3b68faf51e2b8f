"""Ops that only move elements, from [rows, …] to [users, candidates, …]; most of them write nothing."""

from __future__ import annotations

from math import prod

import onnx

from bireme.compiler.rows.lifted import Attributes, Context
from bireme.compiler.rows.row_axes import axes_of, shift
from bireme.compiler.rows.row_blocks import cut, cut_part, join, part_of_terms, reshape_concat, reshape_part
from bireme.compiler.rows.row_dims import TO_THE_END
from bireme.compiler.rows.row_values import (
    Const,
    Lifted,
    Part,
    Rest,
    Segments,
    Stretched,
    Sum,
    Tensor,
)

__all__ = ["concat", "expand", "reshape", "slice_", "split", "squeeze", "tile", "transpose"]


def concat(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """A concat along any axis but the rows: virtual."""
    rest = lift.rest(node)
    position = shift(attributes["axis"], 1 + len(rest))
    if position is None or any(isinstance(value, Const) for value in inputs):
        return None
    axis = position - 2
    parts: list[Part] = []
    for value in inputs:
        if isinstance(value, Segments):
            same = value.axis == axis
            parts.extend(value.parts if same else [lift.writer.write(value)])
        elif not isinstance(value, Const):
            parts.append(value)
    if any(0 in part.rest for part in parts):
        tensors = [lift.writer.write(part) for part in parts]
        if len({tensor.side for tensor in tensors}) == 2:
            tensors = [lift.writer.expand(tensor) for tensor in tensors]
        name = lift.writer.node("Concat", [tensor.name for tensor in tensors], axis=position)
        return Tensor(name, tensors[0].side, rest)
    if len(parts) > 1 and parts[0].rest[axis] == 1 and all(part == parts[0] for part in parts):
        return _stretch(lift, parts[0], rest)  # how Keras repeats elements
    return join(parts, axis)


def _stretch(lift: Context, value: Lifted, rest: Rest) -> Stretched | Sum:
    """A value repeated along dimensions where it has length 1."""
    if isinstance(value, Sum):
        return Sum(value.terms, rest)
    return Stretched(lift.writer.compact(value), rest)


def _reshaped(lift: Context, value: Lifted, rest: Rest) -> Lifted | None:
    """The same elements of every row in another shape; None if rows would be torn."""
    if isinstance(value, Const) or 0 in value.rest or 0 in rest or prod(rest) != prod(value.rest):
        return None
    if isinstance(value, Segments):
        result = reshape_concat(lift, value, rest) if value.mixed else None
        return result or lift.writer.reshape(lift.writer.write(value), rest)
    return reshape_part(lift, value, rest)


def squeeze(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """Squeeze and Unsqueeze."""
    value = inputs[0]
    axes = axes_of(inputs, attributes)
    if not axes or isinstance(value, Const):
        return None
    rest = lift.rest(node)
    rank = 1 + len(rest) if node.op_type == "Unsqueeze" else 1 + len(value.rest)
    shifted = [shift(axis, rank) for axis in axes]
    if None in shifted:
        return None
    if 0 not in value.rest and 0 not in rest:
        return _reshaped(lift, value, rest)
    tensor = lift.writer.write(value)
    weight = lift.writer.axes(*(axis for axis in shifted if axis is not None))
    return Tensor(lift.writer.node(node.op_type, [tensor.name, weight]), tensor.side, rest)


def reshape(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    """A reshape within rows."""
    value, rest = inputs[0], lift.rest(node)
    if isinstance(value, Const):
        return None
    return _reshaped(lift, value, rest)


def transpose(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """A transpose that leaves the rows in front."""
    permutation, value = list(attributes.get("perm", [])), inputs[0]
    if not permutation or permutation[0] != 0 or isinstance(value, Const):
        return None
    rest = lift.rest(node)
    order = [axis - 1 for axis in permutation[1:]]
    if isinstance(value, (Stretched, Sum)):
        if isinstance(value, Stretched):
            return Stretched(_transposed(lift, value.tensor, order), rest)
        return part_of_terms(value, rest, lambda factor: _transposed(lift, factor, order))
    return Tensor(_transposed(lift, lift.writer.write(value), order).name, value.side, rest)


def _transposed(lift: Context, tensor: Tensor, order: list[int]) -> Tensor:
    rest = tuple(tensor.rest[axis] for axis in order)
    if [size for size in rest if size != 1] == [size for size in tensor.rest if size != 1] and 0 not in rest:
        moved = [axis for axis in order if tensor.rest[axis] != 1]
        if moved == sorted(moved):
            return lift.writer.reshape(tensor, rest)
    name = lift.writer.node("Transpose", [tensor.name], perm=[0, 1, *(axis + 2 for axis in order)])
    return Tensor(name, tensor.side, rest)


def slice_(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    """A slice along any axis; along the rows only one that takes them all."""
    value = inputs[0]
    bounds = [bound.value.reshape(-1).tolist() for bound in inputs[1:] if isinstance(bound, Const)]
    if len(bounds) != len(inputs) - 1 or isinstance(value, Const):
        return None
    starts, ends = bounds[0], bounds[1]
    axes = bounds[2] if len(bounds) > 2 else list(range(len(starts)))
    steps = bounds[3] if len(bounds) > 3 else [1] * len(starts)
    kept = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        shifted = shift(axis, 1 + len(value.rest))
        if shifted is not None:
            kept.append((start, end, shifted, step))
        elif start != 0 or end < TO_THE_END or step != 1:
            return None  # takes some rows and leaves others
    if not kept:
        return value
    if 0 not in value.rest and 0 not in lift.rest(node) and all(step == 1 for *_, step in kept):
        result: Lifted = value
        for start, end, shifted, _step in kept:
            size = value.rest[shifted - 2]
            low, high, _one = slice(start, end).indices(size)
            result = _cut(lift, result, shifted - 2, low, high)
        return result
    tensor = lift.writer.write(value)
    names = [lift.writer.axes(*column) for column in zip(*kept, strict=True)]
    return Tensor(lift.writer.node("Slice", [tensor.name, *names]), tensor.side, lift.rest(node))


def _cut(lift: Context, value: Lifted, axis: int, start: int, stop: int) -> Lifted:
    assert not isinstance(value, Const)
    if isinstance(value, Segments):
        if value.axis == axis:
            return cut(lift, value, start, stop)
        return cut_part(lift, lift.writer.write(value), axis, start, stop)
    return value if (start, stop) == (0, value.rest[axis]) else cut_part(lift, value, axis, start, stop)


def split(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> tuple[Lifted, ...] | None:
    """A split along any axis but the rows: one value an output."""
    value = inputs[0]
    if isinstance(value, Const) or 0 in value.rest:
        return None
    position = shift(attributes.get("axis", 0), 1 + len(value.rest))
    if position is None:
        return None
    size, count = value.rest[position - 2], len(node.output)
    sizes = [-(-size // count)] * count
    sizes[-1] = size - sum(sizes[:-1])
    if len(inputs) > 1:
        if not isinstance(inputs[1], Const):
            return None
        sizes = [int(part) for part in inputs[1].value]
    if min(sizes) < 1 or sum(sizes) != size:
        return None
    ends = [sum(sizes[: i + 1]) for i in range(count)]
    return tuple(
        _cut(lift, value, position - 2, end - length, end) for end, length in zip(ends, sizes, strict=True)
    )


def tile(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    """A repetition along any axis but the rows."""
    value = inputs[0]
    repeats = inputs[1].value.tolist() if isinstance(inputs[1], Const) else [0]
    if repeats[0] != 1 or isinstance(value, Const):
        return None
    rest = lift.rest(node)
    if 0 not in value.rest and all(
        times == 1 or size == 1 for times, size in zip(repeats[1:], value.rest, strict=True)
    ):
        return _stretch(lift, value, tuple(t * s for t, s in zip(repeats[1:], value.rest, strict=True)))
    tensor = lift.writer.write(value)
    name = lift.writer.node("Tile", [tensor.name, lift.writer.axes(1, *repeats)])
    return Tensor(name, tensor.side, rest)


def expand(lift: Context, _: onnx.NodeProto, inputs: list[Lifted], __: Attributes) -> Lifted | None:
    """A broadcast to a shape that leaves the rows alone."""
    value, target = inputs[0], inputs[1]
    if not isinstance(target, Const) or isinstance(value, Const) or 0 in value.rest:
        return None
    shape = [int(size) for size in target.value]
    if len(shape) > 1 + len(value.rest) or (len(shape) == 1 + len(value.rest) and shape[0] != 1):
        return None
    wanted = shape[-len(value.rest) :] if value.rest else []
    wanted = [1] * (len(value.rest) - len(wanted)) + wanted
    rest = tuple(max(own, size) for own, size in zip(value.rest, wanted, strict=True))
    if any(own not in (1, size) for own, size in zip(value.rest, rest, strict=True)):
        return None
    return value if rest == value.rest else _stretch(lift, value, rest)
