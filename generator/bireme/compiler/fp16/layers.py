"""Nodes of a dense network in groups that people would call layers."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import onnx

from bireme.compiler.fp16.half import MOVES, is_float, tensor_types

__all__ = ["Layer", "group_layers", "node_costs", "origin"]

#: What folding puts into the name of a dense layer: "dense/MatMul/folded/MatMul" is "dense/MatMul".
_FOLDED = re.compile(r"/[^/]+/folded")
_ANCHORS = ("MatMul", "Gemm", "Conv", "Softmax", "Reduce")
#: Candidates that a user's share of the work is divided by in costs.
_CANDIDATES = 100


@dataclass(frozen=True)
class Layer:
    """Some nodes.

    Args:
        name: as in TensorFlow, where that has a name for it.
        nodes: names of the nodes that compute, in order.
    """

    name: str
    nodes: tuple[str, ...]


def group_layers(model: onnx.ModelProto, at_most: int | None = None) -> list[Layer]:
    """The nodes that compute FP32 numbers, in groups.

    Nodes of one TensorFlow scope belong together. A group without a product, softmax or reduction joins the
    one that it works on (a bias, an activation).

    Args:
        model: a lifted network, its nodes documented with their origin.
        at_most: neighbours are joined until there are no more groups than this; None: none are joined.
    """
    types = tensor_types(model)
    known = {_scope(node) for node in model.graph.node}
    # A scope that holds others is a model, not a layer.
    outer = {scope.rpartition("/")[0] for scope in known} & known
    groups: dict[int, list[onnx.NodeProto]] = {}
    scopes: dict[str, int] = {}
    owner: dict[str, set[int]] = {}  # tensor → groups that compute it
    for node in model.graph.node:
        sources = set().union(*(owner.get(name, set()) for name in node.input))
        if node.op_type in MOVES or not is_float(node, types):
            owner.update(dict.fromkeys(node.output, sources))
            continue
        scope = "" if _scope(node) in outer else _scope(node)
        anchored = node.op_type.startswith(_ANCHORS)
        if scope and scope in scopes:
            group = scopes[scope]
        elif sources and not anchored and len(sources) == 1:
            group = next(iter(sources))
        else:
            group = len(groups)
            groups[group] = []
        if scope:
            scopes.setdefault(scope, group)
        groups[group].append(node)
        owner.update({name: {group} for name in node.output})
    layers = [Layer(_name(nodes), tuple(node.name for node in nodes)) for nodes in groups.values()]
    costs = node_costs(model)
    while at_most is not None and len(layers) > max(1, at_most):
        weight = [sum(costs[name] for name in layer.nodes) for layer in layers]
        first = min(range(len(layers) - 1), key=lambda index: weight[index] + weight[index + 1])
        left, right = layers[first : first + 2]
        name = max((left, right), key=lambda layer: sum(costs[node] for node in layer.nodes)).name
        layers[first : first + 2] = [Layer(name, left.nodes + right.nodes)]
    return layers


def node_costs(model: onnx.ModelProto) -> dict[str, int]:
    """Node → multiply-adds with weights a user and 100 candidates; 1 for other nodes."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [
            d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim
        ]
        for value in (*inferred.value_info, *inferred.input)
    }
    weights = {weight.name: weight.dims for weight in model.graph.initializer}
    costs = {}
    for node in model.graph.node:
        costs[node.name] = 1
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights:
            shape = shapes.get(node.input[0], [])
            inner = int(np.prod([size or 1 for size in shape[2:-1]], dtype=int))
            rows = 1 if len(shape) > 1 and shape[1] == 1 else _CANDIDATES
            costs[node.name] = int(np.prod(weights[node.input[1]], dtype=int)) * inner * rows
    return costs


def origin(node: onnx.NodeProto) -> str:
    """A node's name in TensorFlow, as a user knows it; its own name if it has none there."""
    name = str(node.doc_string).replace("StatefulPartitionedCall/", "")
    return _FOLDED.sub("", name) or str(node.name)


def _scope(node: onnx.NodeProto) -> str:
    return origin(node).rpartition("/")[0]


def _name(nodes: list[onnx.NodeProto]) -> str:
    anchor = next((node for node in nodes if node.op_type.startswith(_ANCHORS)), nodes[0])
    return _scope(anchor) or origin(anchor)
