"""Pass 7, user_once: from rows to [users, candidates], the user side computed once per user.

Every tensor gets a side. `MatMul(concat(user, items), W)` becomes `user·Wu + items·Wi`; elsewhere the user
tensor broadcasts over the candidates as late as possible. The same walk proves that no op mixes candidates:
only ops known to treat rows independently are carried over, any other stops the build with its name. Padding
rows can therefore never change real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from bireme_runtime.plan import Side

from bireme.compiler.dense import OPSET, canonicalise
from bireme.compiler.lifted import Array, Const, Lifted, Segments, Slice, Tensor, TwoSided, Writer
from bireme.compiler.split import Boundary
from bireme.errors import CompileError

__all__ = ["user_once"]

_FULL = 2**31 - 1

ELEMENTWISE = {
    *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Greater"),
    *("GreaterOrEqual", "HardSigmoid", "Identity", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul"),
    *("Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sign", "Softplus", "Sqrt"),
    *("Sub", "Tanh", "Where"),
}
REDUCTIONS = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare", "ReduceProd"}


def user_once(
    rowwise: onnx.ModelProto,
    boundaries: Sequence[Boundary],
    user_width: int,
    item_width: int,
    handover: str,
) -> onnx.ModelProto:
    """Rewrite the row-wise dense network.

    Args:
        rowwise: inputs are the boundaries, outputs the tasks, dim 0 of each is the row.
        boundaries: which columns of `user` or `items` each input is.
        user_width: columns of `user`.
        item_width: columns of `items`.
        handover: dtype of both inputs, "float32" or "float16".

    Returns:
        ONNX with inputs `user` [users, user_width] and `items` [users, candidates, item_width] and one FP32
        output [users, candidates] a task.

    Raises:
        CompileError: an op may mix candidates.
    """
    lift = _Lift(rowwise, boundaries, Writer(user_width, item_width, handover))
    for node in rowwise.graph.node:
        lift.node(node)
    element = onnx.TensorProto.FLOAT16 if handover == "float16" else onnx.TensorProto.FLOAT
    inputs = [
        onnx.helper.make_tensor_value_info("user", element, ["users", user_width]),
        onnx.helper.make_tensor_value_info("items", element, ["users", "candidates", item_width]),
    ]
    tasks = [output.name for output in rowwise.graph.output]
    for task in tasks:
        lift.output(task)
    outputs = [
        onnx.helper.make_tensor_value_info(task, onnx.TensorProto.FLOAT, ["users", "candidates"])
        for task in tasks
    ]
    writer = lift.writer
    graph = onnx.helper.make_graph(writer.nodes, "dense", inputs, outputs, writer.weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=8)
    canonicalise(model)
    onnx.checker.check_model(model, full_check=True)
    return model


class _Lift:
    def __init__(self, rowwise: onnx.ModelProto, boundaries: Sequence[Boundary], writer: Writer) -> None:
        self.writer = writer
        inferred = onnx.shape_inference.infer_shapes(rowwise, strict_mode=True, data_prop=True)
        self._ranks = {
            value.name: len(value.type.tensor_type.shape.dim)
            for value in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
        }
        self._rest = {
            value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim[1:])
            for value in (*inferred.graph.value_info, *inferred.graph.output)
        }
        self.values: dict[str, Lifted] = {
            weight.name: Const(onnx.numpy_helper.to_array(weight)) for weight in rowwise.graph.initializer
        }
        for boundary in boundaries:
            self.values[boundary.name] = self._boundary(boundary)

    def _boundary(self, boundary: Boundary) -> Lifted:
        columns = Slice(boundary.side, boundary.offset, boundary.width)
        if boundary.shape == (boundary.width,):
            return columns
        written = self.writer.write(columns)
        if boundary.shape == ():
            name = self.writer.node("Squeeze", [written.name, self.writer.axes(2)])
        else:
            shape = self.writer.axes(0, 0, *boundary.shape)
            name = self.writer.node("Reshape", [written.name, shape])
        return Tensor(name, boundary.side, boundary.shape)

    def node(self, node: onnx.NodeProto) -> None:
        """Carry one op over.

        Raises:
            CompileError: it is not known to keep rows apart.
        """
        inputs = [self.values[name] for name in node.input if name]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            self.values[node.output[0]] = Const(onnx.numpy_helper.to_array(attributes["value"]))
            return
        handler: Callable[..., Lifted | None] | None = _HANDLERS.get(node.op_type)
        if node.op_type in ELEMENTWISE:
            handler = _elementwise
        elif node.op_type in REDUCTIONS:
            handler = _reduce
        result = handler(self, node, inputs, attributes) if handler is not None and len(node.output) == 1 else None
        if result is None:
            raise CompileError(
                f"op {node.op_type} (dense network, {node.name})",
                "may mix candidates or rows, so bucket padding could change real scores",
                "replace it by an op that treats every row on its own",
            )
        self.values[node.output[0]] = result

    def rest(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """Static shape of a node's output behind the row dimension."""
        return self._rest[node.output[0]]

    def rank(self, node: onnx.NodeProto, index: int) -> int:
        """Row-wise rank of a node's input."""
        value = self.values[node.input[index]]
        return value.value.ndim if isinstance(value, Const) else 1 + len(value.rest)

    def output(self, task: str) -> None:
        """Write a task as FP32 [users, candidates]."""
        value = self.writer.expand(self.writer.write(self.values[task]))
        if value.rest not in ((), (1,)):
            raise CompileError(
                f"output '{task}'",
                f"has {value.rest} values a row; a ranking score is a single number",
                "serve another output, or add a head that reduces it",
            )
        if value.rest == (1,):
            self.writer.node("Squeeze", [value.name, self.writer.axes(2)], name=task)
        else:
            self.writer.node("Identity", [value.name], name=task)


def _shift(axis: int, rank: int) -> int | None:
    """A row-wise axis in the lifted tensor; None for the row axis itself."""
    axis %= rank
    return axis + 1 if axis else None


def _elementwise(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], attributes: dict[str, Any]) -> Lifted | None:
    if node.op_type == "Identity":
        return inputs[0]
    if node.op_type == "Add" and len(inputs) == 2:
        sided = _add_to_one_side(lift, inputs)
        if sided is not None:
            return sided
    tensors = [lift.writer.write(value) for value in inputs if not isinstance(value, Const)]
    rest_rank = len(lift.rest(node))
    # Unequal ranks would align one tensor's rows with another's columns.
    if not tensors or any(len(tensor.rest) != rest_rank for tensor in tensors):
        return None
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


def _add_to_one_side(lift: _Lift, inputs: list[Lifted]) -> Lifted | None:
    """`(user + item) + x`: x joins its own side; a weight joins the user's, which is computed once."""
    total = next((value for value in inputs if isinstance(value, TwoSided)), None)
    other = inputs[1] if total is inputs[0] else inputs[0]
    if total is None:
        return None
    if isinstance(other, Const):
        if other.value.size != 1 and other.value.shape[-1:] != total.rest[-1:]:
            return None
        flat = other.value.reshape(-1) if other.value.size in (1, total.rest[-1]) else None
        if flat is None:
            return None
        name = lift.writer.node("Add", [total.user.name, lift.writer.weight(flat)])
        return TwoSided(Tensor(name, "user", total.rest), total.item)
    if not isinstance(other, Tensor) or other.rest != total.rest:
        return None
    side = total.user if other.side == "user" else total.item
    added = Tensor(lift.writer.node("Add", [side.name, other.name]), other.side, total.rest)
    return TwoSided(added, total.item) if other.side == "user" else TwoSided(total.user, added)


def _matmul(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], _: dict[str, Any]) -> Lifted | None:
    left, right = inputs
    if isinstance(left, Const):
        return None
    if not isinstance(right, Const):
        # Both vary: a batched product per row, fine as long as rows stay a batch dimension.
        if lift.rank(node, 0) != lift.rank(node, 1) or lift.rank(node, 0) < 3:
            return None
        a, b = lift.writer.write(left), lift.writer.write(right)
        side: Side = "item" if "item" in (a.side, b.side) else "user"
        return Tensor(lift.writer.node("MatMul", [a.name, b.name]), side, lift.rest(node))
    if right.value.ndim != 2:
        return None
    return _times(lift, left, right.value, lift.rest(node))


def _times(lift: _Lift, left: Lifted, weights: Array, rest: tuple[int, ...]) -> Lifted:
    """`left · weights`, a mixed concat split by rows of the weights."""
    if isinstance(left, Segments) and len({part.side for part in left.parts}) == 2:
        products: dict[Side, Tensor] = {}
        sides: tuple[Side, Side] = ("user", "item")
        for side in sides:
            starts = np.cumsum([0, *(part.rest[-1] for part in left.parts)])
            chosen = [i for i, part in enumerate(left.parts) if part.side == side]
            rows = np.concatenate([weights[starts[i] : starts[i + 1]] for i in chosen])
            columns = lift.writer.write(Segments(tuple(left.parts[i] for i in chosen)))
            name = lift.writer.node("MatMul", [columns.name, lift.writer.weight(rows)])
            products[side] = Tensor(name, side, rest)
        return TwoSided(products["user"], products["item"])
    tensor = lift.writer.write(left)
    return Tensor(lift.writer.node("MatMul", [tensor.name, lift.writer.weight(weights)]), tensor.side, rest)


def _gemm(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], attributes: dict[str, Any]) -> Lifted | None:
    weights = inputs[1]
    if attributes.get("transA", 0) or not isinstance(weights, Const) or isinstance(inputs[0], Const):
        return None
    matrix = weights.value.T if attributes.get("transB", 0) else weights.value
    product = _times(lift, inputs[0], matrix * np.float32(attributes.get("alpha", 1.0)), lift.rest(node))
    if len(inputs) < 3:
        return product
    bias = inputs[2]
    if not isinstance(bias, Const):
        return None
    scaled = Const(bias.value * np.float32(attributes.get("beta", 1.0)))
    sided = _add_to_one_side(lift, [product, scaled])
    if sided is not None:
        return sided
    tensor = lift.writer.write(product)
    name = lift.writer.node("Add", [tensor.name, lift.writer.weight(scaled.value.reshape(-1))])
    return Tensor(name, tensor.side, tensor.rest)


def _concat(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], attributes: dict[str, Any]) -> Lifted | None:
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


def _softmax(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], attributes: dict[str, Any]) -> Lifted | None:
    axis = _shift(attributes.get("axis", -1), lift.rank(node, 0))
    if axis is None:
        return None
    tensor = lift.writer.write(inputs[0])
    return Tensor(lift.writer.node(node.op_type, [tensor.name], axis=axis), tensor.side, lift.rest(node))


def _axes(inputs: list[Lifted], attributes: dict[str, Any]) -> list[int] | None:
    """Axes, an input or (older ops) an attribute."""
    if len(inputs) > 1:
        return [int(axis) for axis in inputs[1].value.reshape(-1)] if isinstance(inputs[1], Const) else None
    axes = attributes.get("axes")
    return [int(axis) for axis in axes] if axes is not None else None


def _reduce(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], attributes: dict[str, Any]) -> Lifted | None:
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


def _squeeze(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], attributes: dict[str, Any]) -> Lifted | None:
    axes = _axes(inputs, attributes)
    rank = 1 + len(lift.rest(node)) if node.op_type == "Unsqueeze" else lift.rank(node, 0)
    shifted = [_shift(axis, rank) for axis in axes] if axes else [None]
    if None in shifted:
        return None
    tensor = lift.writer.write(inputs[0])
    weight = lift.writer.axes(*(axis for axis in shifted if axis is not None))
    return Tensor(lift.writer.node(node.op_type, [tensor.name, weight]), tensor.side, lift.rest(node))


def _reshape(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], _: dict[str, Any]) -> Lifted | None:
    tensor, rest = lift.writer.write(inputs[0]), lift.rest(node)
    # Rows stay rows only if every row keeps its own elements.
    if 0 in rest or 0 in tensor.rest or np.prod(rest, dtype=int) != np.prod(tensor.rest, dtype=int):
        return None
    shape = lift.writer.axes(0, 0, *rest)
    return Tensor(lift.writer.node("Reshape", [tensor.name, shape]), tensor.side, rest)


def _transpose(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], attributes: dict[str, Any]) -> Lifted | None:
    permutation = list(attributes.get("perm", []))
    if not permutation or permutation[0] != 0:
        return None
    tensor = lift.writer.write(inputs[0])
    lifted = [0, *(axis + 1 for axis in permutation)]
    return Tensor(lift.writer.node("Transpose", [tensor.name], perm=lifted), tensor.side, lift.rest(node))


def _slice(lift: _Lift, node: onnx.NodeProto, inputs: list[Lifted], _: dict[str, Any]) -> Lifted | None:
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
        elif start != 0 or end < _FULL or step != 1:
            return None  # takes some rows and leaves others
    tensor = lift.writer.write(inputs[0])
    if not kept:
        return tensor
    names = [lift.writer.axes(*column) for column in zip(*kept, strict=True)]
    return Tensor(lift.writer.node("Slice", [tensor.name, *names]), tensor.side, lift.rest(node))


_HANDLERS: dict[str, Callable[..., Lifted | None]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Concat": _concat,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Slice": _slice,
}
