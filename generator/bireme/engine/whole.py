"""A network in a form that TensorRT 8.6 compiles as a whole.

8.6 has two ways. Its old optimizer times kernels for each layer, and for the few multiply-adds and
activations between two matrix products it compiles and times dozens of variants in each memory layout:
minutes, and a kernel for every such group. Its graph compiler (Myelin) takes over only where a layer is one
that the old optimizer lacks; then it takes in all around it, in seconds, with fewer kernels. A normalization
layer and Einsum are such layers, a matrix product is not, so that a network without the former has its
products spelled as Einsum. Found by experiment on an H200 (docs/engine.md). From 10 on nothing is changed.
"""

from __future__ import annotations

from typing import Any

__all__ = ["as_one"]

_PRODUCTS = {2: "ab,bc->ac", 3: "abc,cd->abd"}
_EINSUM_SINCE = 12  # opset
_ALREADY = frozenset({"Einsum", "GroupNormalization", "InstanceNormalization", "LayerNormalization"})


def as_one(content: bytes) -> bytes:
    """An ONNX that computes the same; names of nodes and tensors stay.

    Args:
        content: an ONNX.

    Returns:
        The same bytes, if there is nothing to do, the package `onnx` is missing, or they are no ONNX (the
        builder will say so better).
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        return content
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        return content
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < _EINSUM_SINCE or any(node.op_type in _ALREADY for node in model.graph.node):
        return content
    try:
        ranks = _ranks(model)
    except Exception:  # shape inference raises types of its own
        return content
    products = [
        (node, _PRODUCTS[rank])
        for node in model.graph.node
        if node.op_type == "MatMul" and (rank := _of_weight(node, ranks)) is not None
    ]
    for node, equation in products:
        node.op_type = "Einsum"
        node.attribute.append(onnx.helper.make_attribute("equation", equation))
    return bytes(model.SerializeToString()) if products else content


def _ranks(model: Any) -> dict[str, int]:
    """Tensor → number of dimensions; weights as -rank - 1."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in values
        if value.type.tensor_type.HasField("shape")
    }
    return ranks | {weight.name: -len(weight.dims) - 1 for weight in graph.initializer}


def _of_weight(node: Any, ranks: dict[str, int]) -> int | None:
    """Dimensions of what a product multiplies with a matrix of weights; None: it is another product."""
    left, right = node.input
    rank = ranks.get(left)
    return rank if ranks.get(right) == -3 and rank in _PRODUCTS else None
