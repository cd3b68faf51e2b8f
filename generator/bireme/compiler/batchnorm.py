"""Pass 5, batchnorm: multiply-adds by constants (what BatchNorm is when serving) melt into dense layers.

A dense layer is `MatMul(x, W)`, optionally `+ b`. Behind it, `· s` and `+ t` scale W's columns and b. Before
it, they scale W's rows and add `t·W` to b. Either way N trips over the activations become one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.compiler.graph import Graph, Node, tf
from bireme.compiler.shapes import static_shapes

__all__ = ["fold_batchnorm"]

Array = np.ndarray[Any, Any]
_ADDS = {"Add", "AddV2", "BiasAdd"}


@dataclass
class _Affine:
    """`scale · x + shift`, per column of x (both float64, so that several of them fold with one rounding)."""

    source: str
    scale: Array
    shift: Array
    nodes: int


def fold_batchnorm(graph: Graph) -> Graph:
    """Fold constant multiply-adds behind and before dense layers into their weights."""
    graph = graph.copy()
    widths = {name: _columns(shape) for name, shape in static_shapes(graph).items()}
    for node in list(graph.nodes.values()):
        if node.op == "MatMul" and not node.attr["transpose_a"].b:
            _fold_around(graph, node, widths)
    result = graph.keep(graph.ancestors(graph.outputs.values()))
    result.sort()
    return result


def _columns(shape: Any) -> int | None:
    """Width of a matrix [rows, width]; None for anything else."""
    return shape[1] if shape.rank == 2 else None


def _weights(graph: Graph, node: Node) -> Array | None:
    value = graph.constant(node.inputs[1])
    if value is None or value.ndim != 2:
        return None
    return value.T if node.attr["transpose_b"].b else value


def _step(graph: Graph, node: Node, width: int) -> tuple[str, Array, Array] | None:
    """One multiply or add by a per-column constant: (its variable input, scale, shift)."""
    if node.op not in _ADDS | {"Mul", "Sub", "RealDiv"} or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    constant, source = graph.constant(right), left
    if constant is None and node.op not in {"Sub", "RealDiv"}:
        constant, source = graph.constant(left), right
    if constant is None or constant.dtype != np.float32 or graph.constant(source) is not None:
        return None
    if constant.size not in (1, width) or (constant.size == width and constant.shape[-1:] != (width,)):
        return None
    if constant.ndim > 2:
        return None
    value = np.broadcast_to(constant.reshape(-1).astype(np.float64), (width,))
    one, zero = np.ones(width), np.zeros(width)
    if node.op == "Mul":
        return source, value, zero
    if node.op == "RealDiv":
        return source, one / value, zero
    return source, one, -value if node.op == "Sub" else value


def _chain_behind(graph: Graph, ref: str, width: int) -> tuple[str, _Affine]:
    """Follow single readers of `ref` that are multiply-adds; returns the last tensor and the whole affine."""
    affine = _Affine(ref, np.ones(width), np.zeros(width), 0)
    consumers = graph.consumers()
    while True:
        readers = consumers.get(ref, [])
        step = (
            _step(graph, readers[0], width)
            if len(readers) == 1 and ref not in graph.outputs.values()
            else None
        )
        if step is None or step[0] != ref:
            return ref, affine
        affine.scale, affine.shift = affine.scale * step[1], affine.shift * step[1] + step[2]
        affine.nodes += 1
        ref = readers[0].output


def _chain_before(graph: Graph, ref: str, width: int, widths: dict[str, int | None]) -> _Affine:
    """Walk up from `ref` over multiply-adds that only lead here and do not widen their input."""
    affine = _Affine(ref, np.ones(width), np.zeros(width), 0)
    if width == 1:
        return affine  # as a rule a numeric feature: normalised on the CPU, before it is rounded to FP16
    consumers = graph.consumers()
    while len(consumers.get(affine.source, [])) == 1 and affine.source not in graph.outputs.values():
        step = _step(graph, graph.producer(affine.source), width)
        if step is None or widths.get(step[0]) != width:
            break
        affine.shift = affine.shift + affine.scale * step[2]
        affine.scale = affine.scale * step[1]
        affine.source = step[0]
        affine.nodes += 1
    return affine


def _fold_around(graph: Graph, node: Node, widths: dict[str, int | None]) -> None:
    """Replace one dense layer and the multiply-adds around it by MatMul + bias."""
    weights = _weights(graph, node)
    if weights is None:
        return
    weights = weights.astype(np.float64)
    last, behind = _chain_behind(graph, node.output, weights.shape[1])
    before = _chain_before(graph, node.inputs[0], weights.shape[0], widths)
    if before.nodes and graph.producer(before.source).op == "MatMul":
        # It follows another dense layer: it folds into that one, exactly, without the extra bias t·W.
        before = _Affine(node.inputs[0], np.ones(weights.shape[0]), np.zeros(weights.shape[0]), 0)
    if before.nodes == 0 and behind.nodes < 2 and bool(np.all(behind.scale == 1.0)):
        return  # a plain dense layer already
    kernel = before.scale[:, None] * weights * behind.scale
    bias = (before.shift @ weights) * behind.scale + behind.shift
    dense = _add_dense(graph, node, before.source, kernel, bias)
    widths[dense] = kernel.shape[1]
    graph.redirect(last, dense)


def _add_dense(graph: Graph, old: Node, source: str, weights: Array, bias: Array) -> str:
    """Add `source · weights + bias`; returns its tensor."""
    base = f"{old.name}/folded"
    kernel = Node(f"{base}/kernel", "Const", value=weights.astype(np.float32))
    shift = Node(f"{base}/bias", "Const", value=bias.astype(np.float32))
    upright = {key: tf.compat.v1.AttrValue(b=False) for key in ("transpose_a", "transpose_b")}
    matmul = Node(f"{base}/MatMul", "MatMul", [source, kernel.output], {"T": old.attr["T"], **upright})
    total = Node(f"{base}/BiasAdd", "AddV2", [matmul.output, shift.output], {"T": old.attr["T"]})
    for node in (kernel, shift, matmul, total):
        graph.nodes[node.name] = node
    return total.output
