"""Shapes of every tensor of a row-wise graph, where the number of rows may stand at any place, or twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from bireme.compiler.rows.row_bench import Array, Bench, attributes_of
from bireme.compiler.rows.row_dims import TO_THE_END, Dim, Rows, Sizes, evaluate, resolve, sizes_of

__all__ = ["RowShapes", "row_shapes"]


@dataclass(frozen=True)
class RowShapes:
    """What is known about the tensors of a row-wise graph.

    Args:
        shapes: tensor → its sizes; missing where one of them is not known.
        sizes: tensors that hold sizes, of which one is the number of rows.
        constants: weights, and what follows from them.
    """

    shapes: dict[str, list[Dim]]
    sizes: dict[str, Sizes]
    constants: dict[str, Array]


def row_shapes(rowwise: onnx.ModelProto) -> RowShapes:
    """Walk the graph once; dim 0 of every input is the row."""
    bench = Bench("")
    result = RowShapes({}, {}, bench.constants)
    for weight in rowwise.graph.initializer:
        bench.constants[weight.name] = onnx.numpy_helper.to_array(weight)
    for value in rowwise.graph.input:
        kind = value.type.tensor_type
        bench.know(value.name, kind.elem_type, [Rows(), *(d.dim_value or None for d in kind.shape.dim[1:])])
        _note(bench, result, value.name)
    for node in rowwise.graph.node:
        constants = bench.compute(node)
        if constants is not None:
            bench.constants.update(zip(node.output, constants, strict=True))
            continue
        attributes = attributes_of(node)
        if node.op_type == "Constant" and "value" in attributes:
            bench.constants[node.output[0]] = onnx.numpy_helper.to_array(attributes["value"])
            continue
        inputs = [result.sizes.get(name) or sizes_of(bench.constants.get(name)) for name in node.input]
        made = evaluate(node, inputs, attributes, bench.shape(node.input[0]) if node.input else None)
        if made is not None and (
            node.op_type in ("Shape", "Size") or any(n in result.sizes for n in node.input)
        ):
            static = made.static()
            if static is None:
                result.sizes[node.output[0]] = made
                element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(made.dtype))
                bench.know(node.output[0], element, list(made.values.shape))
            else:
                bench.constants[node.output[0]] = static
            continue
        bench.append(node)
        shape = _by_sizes(bench, node, inputs, bool(attributes.get("allowzero", 0)))
        if shape is not None:
            bench.know(node.output[0], bench.element(node.output[0]), list(shape))
        for name in node.output:
            _note(bench, result, name)
    return result


def _note(bench: Bench, result: RowShapes, name: str) -> None:
    shape = bench.shape(name)
    if shape is not None:
        result.shapes[name] = shape


def _by_sizes(
    bench: Bench, node: onnx.NodeProto, inputs: list[Sizes | None], allow_zero: bool
) -> list[Dim] | None:
    """The shape that an op is told, where sizes tell it."""
    if node.op_type == "ConstantOfShape" and inputs[0] is not None:
        return list(inputs[0].values.reshape(-1))
    if node.op_type == "Slice":
        return _of_slice(bench, node, inputs)
    if node.op_type not in ("Reshape", "Expand") or inputs[1] is None:
        return None
    shape, wanted = bench.shape(node.input[0]), list(inputs[1].values.reshape(-1))
    if shape is None:
        return None
    if node.op_type == "Reshape":
        return resolve(wanted, shape, allow_zero)
    rank = max(len(shape), len(wanted))
    shape = [*(1 for _ in range(rank - len(shape))), *shape]
    wanted = [*(1 for _ in range(rank - len(wanted))), *wanted]
    return [b if a == 1 else a for a, b in zip(shape, wanted, strict=True)]


def _of_slice(bench: Bench, node: onnx.NodeProto, inputs: list[Sizes | None]) -> list[Dim] | None:
    """A slice's shape; of the rows all may be taken, the first or the last."""
    shape = bench.shape(node.input[0])
    bounds = [list(value.values.reshape(-1)) for value in inputs[1:] if value is not None]
    if shape is None or len(bounds) != len(node.input) - 1:
        return None
    axes = bounds[2] if len(bounds) > 2 else list(range(len(bounds[0])))
    steps = bounds[3] if len(bounds) > 3 else [1] * len(axes)
    for start, end, axis, step in zip(bounds[0], bounds[1], axes, steps, strict=True):
        size = shape[axis]
        if isinstance(size, int):
            if not isinstance(start, int) or not isinstance(end, int):
                return None
            shape[axis] = len(range(*slice(start, end, step).indices(size)))
        elif (start, end, step) == (0, 1, 1) or (start == -1 and step == 1 and _to_the_end(end)):
            shape[axis] = 1
        elif start != 0 or step != 1 or not (end == size or _to_the_end(end)):
            return None
    return shape


def _to_the_end(end: Dim) -> bool:
    return isinstance(end, int) and end >= TO_THE_END
