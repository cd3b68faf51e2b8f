"""Layer normalization as the one op it is, where TensorFlow has spelled it out.

Keras writes it as a mean, a variance and some multiply-adds; `user_once` may have divided the mean into the
user's and the candidate's columns. One LayerNormalization (opset 17) sums in FP32 wherever the network runs
in FP16, is one kernel for ONNX Runtime, and tells TensorRT 8.6 what it is: only then does that compile what
surrounds it as a whole instead of timing every multiply-add alone (docs/engine.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bireme.compiler.rows.lookup import Lookup

__all__ = ["fuse_layer_norms"]

Array = np.ndarray[Any, Any]


def fuse_layer_norms(model: onnx.ModelProto) -> int:
    """Replace what computes a layer normalization over the last axis; in place. How many there were.

    Args:
        model: FP32, names unique. What nothing reads any more is left in it, for `canonicalise` to drop.
    """
    graph = Lookup(model)
    found = [norm for node in model.graph.node if (norm := _found(graph, node)) is not None]
    for norm in found:
        _replace(model.graph, norm)
    return len(found)


@dataclass(frozen=True)
class _Norm:
    """`output` = (x - mean(x)) / sqrt(variance(x) + epsilon) * scale + shift."""

    x: str
    width: int
    epsilon: float
    output: str
    scale: Array
    shift: Array


def _found(graph: Lookup, node: onnx.NodeProto) -> _Norm | None:
    """The normalization whose standard deviation, or 1 / that, this node computes."""
    power = graph.power(node)
    if power not in (0.5, -0.5):
        return None
    padded = graph.maker(node.input[0], "Add")
    if padded is None:
        return None
    variance, epsilon = graph.with_constant(padded)
    if epsilon is None or epsilon.size != 1 or not 0 < float(epsilon.reshape(())) < 1:
        return None
    squares = graph.mean_of(variance)
    spread = graph.square_of(squares) if squares else None
    difference = graph.maker(spread, "Sub") if spread else None
    if difference is None:
        return None
    x, mean = difference.input
    width = graph.width(x)
    if width is None or not graph.is_row(epsilon, x) or not graph.is_mean(mean, x, width):
        return None
    for output, scale, shift in _ends(graph, node, x, mean, difference.output[0]):
        wide = [np.broadcast_to(value.reshape(-1), (width,)) for value in (scale, shift)]
        return _Norm(x, width, float(epsilon.reshape(())), output, *wide)
    return None


def _ends(
    graph: Lookup, root: onnx.NodeProto, x: str, mean: str, difference: str
) -> Iterator[tuple[str, Array, Array]]:
    """Tensors that are the normalized x, with scale and shift; the one that includes most first."""
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    for plain in _inverses(graph, root):
        for inverse, scale in graph.scaled(plain, x):
            for product in graph.readers(inverse):
                other = graph.other(product, inverse)
                if product.op_type != "Mul" or other is None:
                    continue
                if other == difference:
                    yield graph.affine(product.output[0], scale, zero)
                elif other == x:
                    yield from _shifted(graph, product.output[0], inverse, mean, scale)
    if graph.power(root) == 0.5:
        for node in graph.readers(root.output[0]):
            if node.op_type == "Div" and list(node.input) == [difference, root.output[0]]:
                yield graph.affine(node.output[0], one, zero)


def _inverses(graph: Lookup, root: onnx.NodeProto) -> list[str]:
    """Tensors that are 1 / deviation."""
    if graph.power(root) == -0.5:
        return [root.output[0]]
    deviation = root.output[0]
    return [node.output[0] for node in graph.readers(deviation) if graph.is_inverse(node, deviation)]


def _shifted(
    graph: Lookup, scaled: str, inverse: str, mean: str, scale: Array
) -> Iterator[tuple[str, Array, Array]]:
    """`scaled` = x * inverse, and what subtracts mean * inverse from it."""
    centre = graph.linear(mean)
    opposite = {name: -factor for name, factor in centre.items()}
    for product in graph.readers(inverse):
        other = graph.other(product, inverse)
        if product.op_type != "Mul" or other is None:
            continue
        shift = graph.linear(other)
        if shift not in (centre, opposite):
            continue
        sign = 1.0 if shift == centre else -1.0  # of what has to be subtracted
        for total in (product.output[0], *(node.output[0] for node in graph.readers(product.output[0]))):
            for node in graph.readers(total):
                if scaled not in node.input:
                    continue
                moved = graph.moved(node, scaled, product.output[0], sign)
                if moved is not None:
                    yield graph.affine(node.output[0], scale, moved)


def _replace(graph: onnx.GraphProto, norm: _Norm) -> None:
    """Put the one op where its result was made."""
    for index, node in enumerate(graph.node):
        if norm.output not in node.output:
            continue
        names = []
        for kind, value in (("scale", norm.scale), ("shift", norm.shift)):
            names.append(f"{norm.output}/layer_norm_{kind}")
            weight = numpy_helper.from_array(np.array(value, np.float32), names[-1])
            graph.initializer.append(weight)
        made = helper.make_node(
            "LayerNormalization",
            [norm.x, *names],
            [norm.output],
            node.name,
            doc_string=node.doc_string,
            axis=-1,
            epsilon=norm.epsilon,
        )
        graph.node.remove(node)
        graph.node.insert(index, made)
        return
