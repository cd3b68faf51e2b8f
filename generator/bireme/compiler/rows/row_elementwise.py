"""Elementwise ops from [rows, …] to [users, candidates, …]: per side where the sides are still apart."""

from __future__ import annotations

import numpy as np
import onnx

from bireme.compiler.rows.lifted import Attributes, Context
from bireme.compiler.rows.row_blocks import map_blocks
from bireme.compiler.rows.row_sums import add, add_factor, add_weight, is_number, multiply, scale
from bireme.compiler.rows.row_values import Array, Const, Lifted, Segments, Stretched, Sum, Tensor, broadcast
from bireme_runtime.plan import Side

__all__ = ["ELEMENTWISE", "elementwise", "sigmoid"]

# fmt: off
ELEMENTWISE = (
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "Greater", "GreaterOrEqual", "HardSigmoid", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh", "Where",
)
# fmt: on


def elementwise(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """Any op that works on each element alone."""
    if node.op_type == "Identity":
        return inputs[0]
    varying = [value for value in inputs if not isinstance(value, Const)]
    rest = lift.rest(node)
    # Unequal ranks would align one tensor's rows with another's columns.
    if not varying or any(len(value.rest) != len(rest) for value in varying):
        return None
    sloped = node.op_type == "PRelu"
    if sloped and (isinstance(inputs[0], Const) or not isinstance(inputs[1], Const)):
        return None  # a slope must not be wider than what it meets: not a whole side wider either
    aligned = [_aligned(value, len(rest)) for value in inputs]
    if any(value is None for value in aligned):
        return None
    values = [value for value in aligned if value is not None]
    known = 0 not in rest and not any(0 in value.rest for value in varying)
    if known:
        values = [_shortened(value) for value in values]
        lazy = _arithmetic(lift, node, values)
        lazy = lazy or _blockwise(lift, node, values, attributes)
        if lazy is not None:
            return lazy
    return _whole(lift, node, values, attributes, known and not sloped)


def _aligned(value: Lifted, rank: int) -> Lifted | None:
    """A weight without the row dimension; None if it has several rows."""
    if not isinstance(value, Const):
        return value
    weight = value.value
    if weight.ndim == rank + 1 and weight.shape[0] == 1:
        weight = weight[0]
    return Const(weight) if weight.ndim <= rank else None


def _shortened(value: Lifted) -> Lifted:
    """A weight with length 1 where it only repeats: the tensor that it meets may then stay small."""
    if not isinstance(value, Const):
        return value
    weight = value.value
    for axis in range(weight.ndim):
        first = weight.take([0], axis) if weight.shape[axis] > 1 else weight
        if np.broadcast_to(first, weight.shape).tobytes() == weight.tobytes():
            weight = first
    return Const(weight)


def _arithmetic(lift: Context, node: onnx.NodeProto, values: list[Lifted]) -> Lifted | None:
    """Sums and products of the two sides, kept apart."""
    rest = lift.rest(node)
    if node.op_type == "Neg" and isinstance(values[0], Sum):
        return scale(values[0], -1.0)
    if {"user", "item"} <= {value.side for value in values if not isinstance(value, Const)}:
        values = [lift.writer.write(value) if _of_user(value) else value for value in values]
    if node.op_type not in ("Add", "Sub", "Mul", "Div") or any(isinstance(v, Segments) for v in values):
        return None
    left, right = values
    if isinstance(left, Const) or isinstance(right, Const):
        constant, other = (left, right) if isinstance(left, Const) else (right, left)
        assert isinstance(constant, Const)
        if not isinstance(other, Sum) or other.rest != rest or constant.value.dtype != np.float32:
            return None
        return _with_weight(lift, node.op_type, other, constant.value, constant is left)
    if node.op_type == "Add":
        factored = add_factor(lift, left, right, rest) or add_factor(lift, right, left, rest)
        if factored is not None:
            return factored
    if node.op_type in ("Add", "Sub"):
        return add(lift, left, right, 1.0 if node.op_type == "Add" else -1.0, rest)
    if node.op_type == "Mul" and not isinstance(left, Segments) and not isinstance(right, Segments):
        return multiply(lift, left, right, rest)
    return None


def _of_user(value: Lifted) -> bool:
    """Whether it is a concat of the user's, like the states of a recurrent layer: small when written."""
    return isinstance(value, Segments) and value.side == "user"


def _with_weight(lift: Context, op: str, value: Sum, weight: Array, weight_first: bool) -> Sum | None:
    if op == "Add" or (op == "Sub" and not weight_first):
        return add_weight(lift, value, weight if op == "Add" else -weight)
    if op == "Sub":
        return add_weight(lift, scale(value, -1.0), weight)
    if not is_number(Const(weight)) or (op == "Div" and (weight_first or not weight.all())):
        return None
    factor = float(weight.reshape(-1)[0])
    return scale(value, factor if op == "Mul" else 1.0 / factor)


def _blockwise(
    lift: Context, node: onnx.NodeProto, values: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """On a virtual concat, each side on its own, if everything else fits in."""
    concats = [value for value in values if isinstance(value, Segments)]
    if not concats or not concats[0].mixed:
        return None
    first, rest = concats[0], lift.rest(node)
    layout = [(part.side, part.rest) for part in first.parts]
    if first.rest != rest or any(
        other.axis != first.axis or [(part.side, part.rest) for part in other.parts] != layout
        for other in concats
    ):
        return None
    axis = first.axis - len(rest)
    for value in values:
        if isinstance(value, (Const, Segments)):
            continue
        if value.side == "item" or lift.writer.compact(value).rest[axis] != 1:
            return None

    def run(members: list[int], tensors: list[Tensor]) -> Tensor:
        names, queue = [], list(tensors)
        for value in values:
            if isinstance(value, Segments):
                names.append(queue.pop(0).name)
            elif isinstance(value, Const):
                names.append(lift.writer.weight(_columns(value.value, axis, first.starts, members)))
            else:
                names.append(lift.writer.compact(value).name)
        shape = tensors[0].rest
        return Tensor(lift.writer.node(node.op_type, names, **attributes), tensors[0].side, shape)

    return map_blocks(lift, concats, run)


def _columns(weight: Array, axis: int, starts: list[int], members: list[int]) -> Array:
    """Those columns of a weight that belong to some parts."""
    if weight.ndim < -axis or weight.shape[axis] == 1:
        return weight
    chosen = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in members])
    return np.asarray(np.take(weight, chosen, axis=axis))


def _whole(
    lift: Context, node: onnx.NodeProto, values: list[Lifted], attributes: Attributes, known: bool
) -> Lifted:
    """On written tensors; those that only repeat along a dimension stay as small as they are."""
    rest = lift.rest(node)
    tensors = {
        id(value): lift.writer.compact(value) if known else lift.writer.write(value)
        for value in values
        if not isinstance(value, Const)
    }
    names = [
        lift.writer.weight(value.value) if isinstance(value, Const) else tensors[id(value)].name
        for value in values
    ]
    side: Side = "item" if any(tensor.side == "item" for tensor in tensors.values()) else "user"
    name = lift.writer.node(node.op_type, names, **attributes)
    if not known:
        return Tensor(name, side, rest)
    shapes = [tensor.rest for tensor in tensors.values()]
    held = broadcast(*shapes, *(value.value.shape for value in values if isinstance(value, Const)))
    tensor = Tensor(name, side, held)
    if node.op_type == "Mul" and len(tensors) == 2:
        lift.products[name] = (values[0], values[1])
    return tensor if held == rest else Stretched(tensor, rest)


def sigmoid(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """A score's sigmoid as 1 / (1 + exp(-x)); inner gates keep the op.

    ONNX Runtime's Sigmoid has an absolute error of up to 6e-8 (measured), which ties candidates whose scores
    are smaller than that, however different they are.
    """
    if lift.rest(node) not in ((), (1,)) or isinstance(inputs[0], Const):
        return elementwise(lift, node, inputs, attributes)
    tensor = lift.writer.write(inputs[0])
    growth = lift.writer.node("Exp", [lift.writer.node("Neg", [tensor.name])])
    one = lift.writer.weight(np.ones((), dtype=np.float32))
    name = lift.writer.node("Reciprocal", [lift.writer.node("Add", [growth, one])])
    return Tensor(name, tensor.side, tensor.rest)
