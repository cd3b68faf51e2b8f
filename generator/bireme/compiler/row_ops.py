"""Ops that keep rows apart, carried from [rows, …] to [users, candidates, …].

`HANDLERS[op]` returns the lifted output, or None where this use of the op could mix rows (a softmax over the
row axis, a reshape across rows, a broadcast of one tensor's rows against another's columns). An op without a
handler is treated like one that returns None. To allow a further op, add its handler here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from bireme.compiler.lifted import Attributes, Const, Context, Lifted, Segments, Slice, Tensor
from bireme.compiler.row_products import add_to_one_side, gemm, matmul
from bireme_runtime.plan import Side

__all__ = ["HANDLERS"]

Handler = Callable[[Context, onnx.NodeProto, list[Lifted], Attributes], "Lifted | None"]

# fmt: off
_ELEMENTWISE = (
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "Greater", "GreaterOrEqual", "HardSigmoid", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log",
    "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu",
    "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh", "Where",
)
# fmt: on
# fmt: off
_REDUCTIONS = (
    "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)
# fmt: on
#: A slice that ends here, or later, runs to the end: what tf2onnx writes behind an ellipsis.
_TO_THE_END = 10**9


def _shift(axis: int, rank: int) -> int | None:
    """A row-wise axis in the lifted tensor; None for the row axis itself."""
    axis %= rank
    return axis + 1 if axis else None


def _elementwise(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    if node.op_type == "Identity":
        return inputs[0]
    varying = [value for value in inputs if not isinstance(value, Const)]
    rest_rank = len(lift.rest(node))
    # Unequal ranks would align one tensor's rows with another's columns.
    if not varying or any(len(value.rest) != rest_rank for value in varying):
        return None
    if node.op_type == "Add" and len(inputs) == 2:
        sided = add_to_one_side(lift, inputs)
        if sided is not None:
            return sided
    tensors = [lift.writer.write(value) for value in varying]
    names, queue = [], list(tensors)
    for value in inputs:
        if not isinstance(value, Const):
            names.append(queue.pop(0).name)
        elif value.value.ndim <= rest_rank:
            names.append(lift.writer.weight(value.value))
        elif value.value.ndim == rest_rank + 1 and value.value.shape[0] == 1:
            names.append(lift.writer.weight(value.value[0]))
        else:
            return None
    side: Side = "item" if any(tensor.side == "item" for tensor in tensors) else "user"
    return Tensor(lift.writer.node(node.op_type, names, **attributes), side, lift.rest(node))


def _sigmoid(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """A score's sigmoid as 1 / (1 + exp(-x)); inner gates keep the op.

    ONNX Runtime's Sigmoid has an absolute error of up to 6e-8 (measured), which ties candidates whose scores
    are smaller than that, however different they are.
    """
    if lift.rest(node) not in ((), (1,)) or isinstance(inputs[0], Const):
        return _elementwise(lift, node, inputs, attributes)
    tensor = lift.writer.write(inputs[0])
    growth = lift.writer.node("Exp", [lift.writer.node("Neg", [tensor.name])])
    one = lift.writer.weight(np.ones((), dtype=np.float32))
    name = lift.writer.node("Reciprocal", [lift.writer.node("Add", [growth, one])])
    return Tensor(name, tensor.side, tensor.rest)


def _concat(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    rank = 1 + len(lift.rest(node))
    axis = _shift(attributes["axis"], rank)
    if axis is None or any(isinstance(value, Const) for value in inputs):
        return None
    if axis == rank:  # the last one
        parts: list[Tensor | Slice] = []
        for value in inputs:
            if isinstance(value, Segments):
                parts.extend(value.parts)
            else:
                parts.append(value if isinstance(value, Slice) else lift.writer.write(value))
        return Segments(tuple(parts))
    tensors = [lift.writer.write(value) for value in inputs]
    mixed = len({tensor.side for tensor in tensors}) == 2
    tensors = [lift.writer.expand(tensor) for tensor in tensors] if mixed else tensors
    names = [tensor.name for tensor in tensors]
    return Tensor(lift.writer.node("Concat", names, axis=axis), tensors[0].side, lift.rest(node))


def _softmax(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    axis = _shift(attributes.get("axis", -1), lift.rank(node, 0))
    if axis is None:
        return None
    tensor = lift.writer.write(inputs[0])
    return Tensor(lift.writer.node(node.op_type, [tensor.name], axis=axis), tensor.side, lift.rest(node))


def _axes(inputs: list[Lifted], attributes: Attributes) -> list[int] | None:
    """Axes, an input or (older ops) an attribute."""
    if len(inputs) > 1:
        return [int(axis) for axis in inputs[1].value.reshape(-1)] if isinstance(inputs[1], Const) else None
    axes = attributes.get("axes")
    return [int(axis) for axis in axes] if axes is not None else None


def _reduce(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    axes = _axes(inputs, attributes)
    shifted = [_shift(axis, lift.rank(node, 0)) for axis in axes] if axes else [None]
    if None in shifted:
        return None
    tensor = lift.writer.write(inputs[0])
    keep = attributes.get("keepdims", 1)
    positions = [axis for axis in shifted if axis is not None]
    if node.op_type == "ReduceSum":
        name = lift.writer.node("ReduceSum", [tensor.name, lift.writer.axes(*positions)], keepdims=keep)
    else:
        name = lift.writer.node(node.op_type, [tensor.name], axes=positions, keepdims=keep)
    return Tensor(name, tensor.side, lift.rest(node))


def _squeeze(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    axes = _axes(inputs, attributes)
    rank = 1 + len(lift.rest(node)) if node.op_type == "Unsqueeze" else lift.rank(node, 0)
    shifted = [_shift(axis, rank) for axis in axes] if axes else [None]
    if None in shifted:
        return None
    tensor = lift.writer.write(inputs[0])
    weight = lift.writer.axes(*(axis for axis in shifted if axis is not None))
    return Tensor(lift.writer.node(node.op_type, [tensor.name, weight]), tensor.side, lift.rest(node))


def _reshape(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    tensor, rest = lift.writer.write(inputs[0]), lift.rest(node)
    # Rows stay rows only if every row keeps its own elements.
    if 0 in rest or 0 in tensor.rest or np.prod(rest, dtype=int) != np.prod(tensor.rest, dtype=int):
        return None
    shape = lift.writer.axes(0, 0, *rest)
    return Tensor(lift.writer.node("Reshape", [tensor.name, shape]), tensor.side, rest)


def _transpose(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    permutation = list(attributes.get("perm", []))
    if not permutation or permutation[0] != 0:
        return None
    tensor = lift.writer.write(inputs[0])
    lifted = [0, *(axis + 1 for axis in permutation)]
    return Tensor(lift.writer.node("Transpose", [tensor.name], perm=lifted), tensor.side, lift.rest(node))


def _slice(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    bounds = [value.value.reshape(-1).tolist() for value in inputs[1:] if isinstance(value, Const)]
    if len(bounds) != len(inputs) - 1:
        return None
    starts, ends = bounds[0], bounds[1]
    axes = bounds[2] if len(bounds) > 2 else list(range(len(starts)))
    steps = bounds[3] if len(bounds) > 3 else [1] * len(starts)
    kept = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        shifted = _shift(axis, lift.rank(node, 0))
        if shifted is not None:
            kept.append((start, end, shifted, step))
        elif start != 0 or end < _TO_THE_END or step != 1:
            return None  # takes some rows and leaves others
    tensor = lift.writer.write(inputs[0])
    if not kept:
        return tensor
    names = [lift.writer.axes(*column) for column in zip(*kept, strict=True)]
    return Tensor(lift.writer.node("Slice", [tensor.name, *names]), tensor.side, lift.rest(node))


def _tile(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    repeats = inputs[1].value.tolist() if isinstance(inputs[1], Const) else [0]
    if repeats[0] != 1 or isinstance(inputs[0], Const):
        return None
    tensor = lift.writer.write(inputs[0])
    name = lift.writer.node("Tile", [tensor.name, lift.writer.axes(1, *repeats)])
    return Tensor(name, tensor.side, lift.rest(node))


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "Sigmoid": _sigmoid,
    "MatMul": matmul,
    "Gemm": gemm,
    "Concat": _concat,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Slice": _slice,
    "Tile": _tile,
}
