"""Layers of the user that read the same columns, done as one product.

A product with a single row costs what starting it and streaming its weights cost, so one wide product is
cheaper than several narrow ones (8 layers of an MMoE: 1.1-1.6 % of the whole network). Layers of candidates
stay apart: there the product itself is what costs, and cutting up its result made it 2-4 % slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

__all__ = ["merge_parallel"]


def merge_parallel(model: onnx.ModelProto) -> None:
    """Merge parallel layers of the user in place.

    Args:
        model: lifted: inputs `user` and `items`.
    """
    graph = model.graph
    fresh = _Fresh(graph)
    weights = {weight.name: weight for weight in graph.initializer}
    user = _user_side(graph)
    layers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.op_type != "MatMul":
            continue
        left, right = node.input
        if right in weights and left in user and len(weights[right].dims) == 2:
            layers.setdefault(left, []).append(node)
    for group in layers.values():
        if len(group) > 1:
            _merge_layers(graph, fresh, weights, group)


class _Fresh:
    """Names that are not taken."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}

    def __call__(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _user_side(graph: onnx.GraphProto) -> set[str]:
    """Tensors that depend on `user` alone."""
    items, user = {"items"}, {"user"}
    for node in graph.node:
        if items & set(node.input):
            items.update(node.output)
        elif user & set(node.input):
            user.update(node.output)
    return user


def _origin(nodes: Iterable[onnx.NodeProto]) -> str:
    return " + ".join(dict.fromkeys(node.name for node in nodes if node.name))


def _merge_layers(
    graph: onnx.GraphProto,
    fresh: _Fresh,
    weights: dict[str, onnx.TensorProto],
    group: list[onnx.NodeProto],
) -> None:
    """`x·A (+ a)` and `x·B (+ b)` as `x·[A, B] (+ [a, b])`, cut up behind."""
    matrices = [onnx.numpy_helper.to_array(weights[node.input[1]]) for node in group]
    biases = [
        _bias(graph, weights, node, matrix.shape[1]) for node, matrix in zip(group, matrices, strict=True)
    ]
    adds = [bias for bias in biases if bias is not None]
    last, wide = group, fresh("wide")
    merged = [_product(graph, fresh, group, np.concatenate(matrices, axis=1), wide)]
    if len(adds) == len(group):
        shifts = [
            np.broadcast_to(onnx.numpy_helper.to_array(weight).reshape(-1), (matrix.shape[1],))
            for (_, weight), matrix in zip(adds, matrices, strict=True)
        ]
        last = [node for node, _ in adds]
        shift, shifted = fresh("shift"), fresh("shifted")
        graph.initializer.append(onnx.numpy_helper.from_array(np.concatenate(shifts), shift))
        merged.append(onnx.helper.make_node("Add", [wide, shift], [shifted], _origin(last)))
        wide = shifted
    lengths = fresh("lengths")
    sizes = np.array([matrix.shape[1] for matrix in matrices], np.int64)
    graph.initializer.append(onnx.numpy_helper.from_array(sizes, lengths))
    outputs = [node.output[0] for node in last]
    _drop(graph, [*group, *last])
    split = onnx.helper.make_node("Split", [wide, lengths], outputs, _origin(last), axis=-1)
    graph.node.extend([*merged, split])


def _bias(
    graph: onnx.GraphProto, weights: dict[str, onnx.TensorProto], node: onnx.NodeProto, width: int
) -> tuple[onnx.NodeProto, onnx.TensorProto] | None:
    """The Add behind a layer, if it is all that reads the layer."""
    readers = [reader for reader in graph.node if node.output[0] in reader.input]
    if len(readers) != 1 or readers[0].op_type != "Add":
        return None
    others = [name for name in readers[0].input if name != node.output[0]]
    weight = weights.get(others[0]) if others else None
    if weight is None or list(weight.dims) not in ([], [1], [width]):
        return None
    return readers[0], weight


def _product(
    graph: onnx.GraphProto,
    fresh: _Fresh,
    group: list[onnx.NodeProto],
    matrix: np.ndarray[Any, Any],
    output: str,
) -> onnx.NodeProto:
    weight = fresh("weight")
    graph.initializer.append(onnx.numpy_helper.from_array(matrix, weight))
    return onnx.helper.make_node("MatMul", [group[0].input[0], weight], [output], _origin(group))


def _drop(graph: onnx.GraphProto, nodes: list[onnx.NodeProto]) -> None:
    outputs = {node.output[0] for node in nodes}
    kept = [node for node in graph.node if node.output[0] not in outputs]
    del graph.node[:]
    graph.node.extend(kept)
