"""Further ops that keep rows apart, carried from [rows, …] to [users, candidates, …]: see `row_ops`.

Each handler shows why: it indexes, reduces or slides along axes other than the row's, and every tensor that
takes part has its own rows in front. NonZero, Compress, Unique, ScatterND and the random ops have none: what
they give back for one row depends on the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from bireme.compiler.rows.lifted import Attributes, Context
from bireme.compiler.rows.row_axes import shift
from bireme.compiler.rows.row_products import matmul
from bireme.compiler.rows.row_values import Const, Lifted, Tensor
from bireme_runtime.plan import Side

__all__ = ["MORE", "MoreHandler"]

MoreHandler = Callable[
    [Context, onnx.NodeProto, list[Lifted], Attributes], "Lifted | tuple[Lifted, ...] | None"
]

# fmt: off
_UNARY = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cosh", "HardSwish", "IsInf", "IsNaN", "Sinh",
    "Tan", "ThresholdedRelu", "Trilu",
)
_REDUCTIONS = ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp")
# fmt: on


def _axis(lift: Context, node: onnx.NodeProto, axis: int) -> int | None:
    """An axis of the first input, as `shift` counts it."""
    return shift(axis, lift.rank(node, 0))


def _one_side(lift: Context, tensors: list[Tensor]) -> tuple[list[Tensor], Side]:
    """Tensors of which each must have all candidates, because the op does not broadcast."""
    if len({tensor.side for tensor in tensors}) == 1:
        return tensors, tensors[0].side
    return [lift.writer.expand(tensor) for tensor in tensors], "item"


def _unary(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    if isinstance(inputs[0], Const) or len(inputs) != 1:
        return None
    if node.op_type == "Trilu" and lift.rank(node, 0) < 3:
        return None  # the rows are rows of the matrix
    tensor = lift.writer.write(inputs[0])
    return Tensor(lift.writer.node(node.op_type, [tensor.name], **attributes), tensor.side, lift.rest(node))


def _xor(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], _: Attributes) -> Lifted | None:
    if any(isinstance(value, Const) for value in inputs) or lift.rank(node, 0) != lift.rank(node, 1):
        return None
    tensors = [lift.writer.write(value) for value in inputs]
    side: Side = "item" if any(tensor.side == "item" for tensor in tensors) else "user"
    return Tensor(lift.writer.node("Xor", [tensor.name for tensor in tensors]), side, lift.rest(node))


def _reduce(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    axes = [_axis(lift, node, axis) for axis in attributes.get("axes", [])]
    if not axes or None in axes or isinstance(inputs[0], Const):
        return None
    tensor = lift.writer.write(inputs[0])
    keep = attributes.get("keepdims", 1)
    name = lift.writer.node(node.op_type, [tensor.name], axes=axes, keepdims=keep)
    return Tensor(name, tensor.side, lift.rest(node))


def _arg(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes) -> Lifted | None:
    axis = _axis(lift, node, attributes.get("axis", 0))
    if axis is None or isinstance(inputs[0], Const):
        return None
    tensor = lift.writer.write(inputs[0])
    name = lift.writer.node(node.op_type, [tensor.name], **{**attributes, "axis": axis})
    return Tensor(name, tensor.side, lift.rest(node))


def _hardmax(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    return _arg(lift, node, inputs, {"axis": attributes.get("axis", -1)})


def _cumsum(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    if isinstance(inputs[0], Const) or not isinstance(inputs[1], Const):
        return None
    axis = _axis(lift, node, int(inputs[1].value.reshape(-1)[0]))
    if axis is None:
        return None
    tensor = lift.writer.write(inputs[0])
    place = lift.writer.weight(np.array(axis, dtype=np.int64))
    return Tensor(lift.writer.node("CumSum", [tensor.name, place], **attributes), tensor.side, tensor.rest)


def _top(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> tuple[Lifted, ...] | None:
    """The largest along an axis of every row: values and their places."""
    axis = _axis(lift, node, attributes.get("axis", -1))
    if axis is None or isinstance(inputs[0], Const) or not isinstance(inputs[1], Const):
        return None
    tensor = lift.writer.write(inputs[0])
    count = lift.writer.weight(inputs[1].value.reshape(1))
    outputs = lift.writer.nodes_of(
        "TopK", [tensor.name, count], len(node.output), **{**attributes, "axis": axis}
    )
    return tuple(Tensor(output, tensor.side, lift.rest(node)) for output in outputs)


def _gather(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """Fixed places of every row, or rows of a constant table at each row's own numbers."""
    data, indices = inputs
    axis = attributes.get("axis", 0)
    if isinstance(data, Const):
        if isinstance(indices, Const) or axis % data.value.ndim:
            return None
        chosen = lift.writer.write(indices)
        name = lift.writer.node("Gather", [lift.writer.weight(data.value), chosen.name], axis=0)
        return Tensor(name, chosen.side, lift.rest(node))
    place = _axis(lift, node, axis)
    if place is None or not isinstance(indices, Const):
        return None
    tensor = lift.writer.write(data)
    name = lift.writer.node("Gather", [tensor.name, lift.writer.weight(indices.value)], axis=place)
    return Tensor(name, tensor.side, lift.rest(node))


def _gather_own(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """Every row read at its own places."""
    if any(isinstance(value, Const) for value in inputs):
        return None
    (data, indices), side = _one_side(lift, [lift.writer.write(value) for value in inputs])
    if node.op_type == "GatherND":
        if attributes.get("batch_dims", 0) < 1:
            return None
        attributes = {"batch_dims": attributes["batch_dims"] + 1}
    else:
        axis = _axis(lift, node, attributes.get("axis", 0))
        if axis is None:
            return None
        attributes = {"axis": axis}
    return Tensor(
        lift.writer.node(node.op_type, [data.name, indices.name], **attributes), side, lift.rest(node)
    )


def _one_hot(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    indices, depth, values = inputs
    axis = attributes.get("axis", -1) % (lift.rank(node, 0) + 1)
    if (
        isinstance(indices, Const)
        or not isinstance(depth, Const)
        or not isinstance(values, Const)
        or not axis
    ):
        return None
    tensor = lift.writer.write(indices)
    weights = [lift.writer.weight(depth.value), lift.writer.weight(values.value)]
    name = lift.writer.node("OneHot", [tensor.name, *weights], axis=axis + 1)
    return Tensor(name, tensor.side, lift.rest(node))


def _pad(lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes) -> Lifted | None:
    if isinstance(inputs[0], Const) or not all(isinstance(value, Const) for value in inputs[1:]):
        return None
    values = [value.value for value in inputs[1:] if isinstance(value, Const)]
    rank = lift.rank(node, 0)
    fronts, backs = values[0].tolist()[:rank], values[0].tolist()[rank:]
    if len(backs) != rank or fronts[0] or backs[0]:
        return None
    tensor = lift.writer.write(inputs[0])
    names = [lift.writer.axes(0, *fronts, 0, *backs), *(lift.writer.weight(value) for value in values[1:])]
    name = lift.writer.node("Pad", [tensor.name, *names], **attributes)
    return Tensor(name, tensor.side, lift.rest(node))


def _layer_norm(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    axis = _axis(lift, node, attributes.get("axis", -1))
    if axis is None or isinstance(inputs[0], Const) or not all(isinstance(v, Const) for v in inputs[1:]):
        return None
    tensor = lift.writer.write(inputs[0])
    weights = [lift.writer.weight(value.value) for value in inputs[1:] if isinstance(value, Const)]
    name = lift.writer.node("LayerNormalization", [tensor.name, *weights], **{**attributes, "axis": axis})
    return Tensor(name, tensor.side, lift.rest(node))


def _over_images(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """Convolutions and pools: a row is an image of its own in the batch, which holds users × candidates."""
    if isinstance(inputs[0], Const) or not all(isinstance(value, Const) for value in inputs[1:]):
        return None
    rest = lift.rest(node)
    if 0 in (*inputs[0].rest, *rest):
        return None
    writer = lift.writer
    tensor = writer.write(inputs[0])
    weights = [writer.weight(value.value) for value in inputs[1:] if isinstance(value, Const)]
    if tensor.side == "user":
        images = writer.node("Squeeze", [tensor.name, writer.axes(1)])
        made = writer.node(node.op_type, [images, *weights], **attributes)
        return Tensor(writer.node("Unsqueeze", [made, writer.axes(1)]), "user", rest)
    images = writer.node("Reshape", [tensor.name, writer.axes(-1, *tensor.rest)])
    made = writer.node(node.op_type, [images, *weights], **attributes)
    lead = writer.node("Shape", [tensor.name], start=0, end=2)
    shape = writer.node("Concat", [lead, writer.axes(*rest)], axis=0)
    return Tensor(writer.node("Reshape", [made, shape]), "item", rest)


def _einsum(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """The row's letter comes first in the result and in every tensor that has rows, and nowhere else."""
    equation = attributes["equation"].decode().replace(" ", "")
    terms, _, output = equation.partition("->")
    names = terms.split(",")
    varying = [not isinstance(value, Const) for value in inputs]
    if "." in equation or not output or len(names) != len(inputs) or not any(varying):
        return None
    row = output[0]
    for name, has_rows in zip(names, varying, strict=True):
        if name.count(row) != has_rows or (has_rows and name[0] != row) or output.count(row) != 1:
            return None
    letter = next(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation)
    tensors, side = _one_side(lift, [lift.writer.write(v) for v in inputs if not isinstance(v, Const)])
    queue = iter(tensors)
    operands = [
        lift.writer.weight(value.value) if isinstance(value, Const) else next(queue).name for value in inputs
    ]
    lifted = [row + letter + name[1:] if rows else name for name, rows in zip(names, varying, strict=True)]
    equation = f"{','.join(lifted)}->{row}{letter}{output[1:]}"
    return Tensor(lift.writer.node("Einsum", operands, equation=equation), side, lift.rest(node))


def _matmul(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    """Also weights with a matrix for each of some axes behind the row's."""
    left, right = inputs
    if isinstance(left, Const) or not isinstance(right, Const) or right.value.ndim < 3:
        return matmul(lift, node, inputs, attributes)
    weights, rank = right.value, lift.rank(node, 0)
    if weights.ndim == rank and weights.shape[0] == 1:
        weights = weights[0]
    if weights.ndim >= rank:
        return None
    tensor = lift.writer.write(left)
    name = lift.writer.node("MatMul", [tensor.name, lift.writer.weight(weights)])
    return Tensor(name, tensor.side, lift.rest(node))


MORE: dict[str, MoreHandler] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("Conv", "MaxPool", "AveragePool", "LpPool"), _over_images),
    **dict.fromkeys(("GatherElements", "GatherND"), _gather_own),
    "Xor": _xor,
    "Hardmax": _hardmax,
    "CumSum": _cumsum,
    "TopK": _top,
    "Gather": _gather,
    "OneHot": _one_hot,
    "Pad": _pad,
    "LayerNormalization": _layer_norm,
    "Einsum": _einsum,
    "MatMul": _matmul,
}
