"""What one request costs in a dense network: multiply-adds of its matrix products, bytes of its activations.

Both are counted from the shapes that the network's tensors have for that number of candidates, so a tensor of
the user counts once and one of the candidates N times, whatever the graph looks like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import onnx

from bireme.compiler.dense import runner

__all__ = ["bytes_per_request", "flops_per_node", "flops_per_request"]

Shape = tuple[int, ...]
#: Ops that hand on their input's memory, or only look at shapes.
_FREE = {"Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Shape", "Constant"}


def flops_per_request(model: onnx.ModelProto, candidates: int) -> int:
    """Multiply-adds × 2 of matrix products and convolutions, for one user; elementwise ops do not count.

    Args:
        model: row-wise (dim 0 is the row) or lifted (dim 0 is called "users"; then 1 or candidates), the
            halves of `--user-ahead` too.
        candidates: N.
    """
    return sum(flops_per_node(model, candidates))


def flops_per_node(model: onnx.ModelProto, candidates: int) -> list[int]:
    """The same, node by node, in the order of the graph."""
    fixed = _for_candidates(model, candidates)
    shapes = _shapes(fixed)
    return [2 * _multiply_adds(node, shapes) for node in fixed.graph.node]


def bytes_per_request(model: onnx.ModelProto, candidates: int) -> int:
    """Bytes of activations that all ops together read and write, for one user; weights are not counted.

    Args:
        model: as for `flops_per_request`.
        candidates: N.
    """
    fixed = _for_candidates(model, candidates)
    shapes = _shapes(fixed)
    sizes = _element_sizes(fixed)
    weights = {weight.name for weight in fixed.graph.initializer}
    total = 0
    for node in fixed.graph.node:
        if node.op_type in _FREE:
            continue
        moved = [name for name in (*node.input, *node.output) if name and name not in weights]
        total += sum(prod(shapes[name]) * sizes[name] for name in moved)
    return total


def _for_candidates(model: onnx.ModelProto, candidates: int) -> onnx.ModelProto:
    """The model with all its inputs' dimensions as numbers."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        dims = value.type.tensor_type.shape.dim
        lifted = bool(dims) and dims[0].dim_param == "users"
        for index, dim in enumerate(dims):
            if not dim.HasField("dim_value"):
                dim.dim_value = 1 if lifted and index == 0 else candidates
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    return fixed


def _inferred(model: onnx.ModelProto) -> onnx.GraphProto:
    return onnx.shape_inference.infer_shapes(model, data_prop=True).graph


def _shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """The shape of every tensor; the few that inference cannot tell are seen by running the network."""
    graph = _inferred(model)
    shapes = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[value.name] = tuple(d.dim_value for d in dims)
    unknown = [name for node in graph.node for name in node.output if name and name not in shapes]
    return shapes | (_seen(model, unknown) if unknown else {})


def _seen(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, Shape]:
    """Shapes of some tensors in a run on zeros."""
    open_ended = onnx.ModelProto()
    open_ended.CopyFrom(model)
    del open_ended.graph.output[:]
    open_ended.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = np.zeros(shape, dtype)
    return {name: tuple(array.shape) for name, array in runner(open_ended)(feeds).items()}


def _element_sizes(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor → bytes of an element; 4 where inference does not tell."""
    graph = _inferred(model)
    sizes = {name: 4 for node in graph.node for name in (*node.input, *node.output)}
    for value in (*graph.input, *graph.value_info, *graph.output):
        element = value.type.tensor_type.elem_type
        if element:
            sizes[value.name] = int(onnx.helper.tensor_dtype_to_np_dtype(element).itemsize)
    return sizes


def _multiply_adds(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> int:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "MatMul":
        return prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
    if node.op_type == "Gemm":
        return prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if attributes.get("transA") else 1]
    if node.op_type == "Conv":
        return prod(shapes[node.output[0]]) * prod(shapes[node.input[1]][1:])
    if node.op_type == "Einsum" and len(node.input) > 1:
        terms = attributes["equation"].decode().replace(" ", "").partition("->")[0].split(",")
        sizes = {
            letter: size
            for term, name in zip(terms, node.input, strict=True)
            for letter, size in zip(term, shapes[name], strict=True)
        }
        return prod(sizes.values()) * (len(terms) - 1)
    return 0
