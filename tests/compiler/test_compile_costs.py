"""Operations and bytes of a request against numbers computed by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from compiler_networks import Network, lift

from bireme.compiler.rows.costs import bytes_per_request, flops_per_request


def lifted_graph(nodes: list[onnx.NodeProto], **weights: np.ndarray) -> onnx.ModelProto:
    """A network over user [users, 6] and items [users, candidates, 4]."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "dense",
        [value("user", 1, ["users", 6]), value("items", 1, ["users", "candidates", 4])],
        [value(nodes[-1].output[0], 1, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


node = onnx.helper.make_node


@pytest.mark.parametrize("candidates", [1, 500])
def test_products_of_two_varying_tensors_count(candidates):
    """A history [3, 2] of the user against rows of the items, with weights made once a user."""
    model = lifted_graph(
        [
            node("Reshape", ["user", "history"], ["h"]),
            node("MatMul", ["h", "w"], ["keys"]),  # [1, 3, 4], once
            node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
            node("MatMul", ["items", "turned"], ["scores"]),  # [1, N, 3]
            node("MatMul", ["scores", "h"], ["pooled"]),  # [1, N, 2]
        ],
        history=np.array([0, 3, 2]),
        w=np.ones((2, 4), np.float32),
    )
    assert flops_per_request(model, candidates) == 2 * (3 * 2 * 4 + candidates * (4 * 3 + 3 * 2))
    # MatMul: h, keys; Transpose: keys, turned; MatMul: items, turned, scores; MatMul: scores, h, pooled.
    floats = (6 + 12) + (12 + 12) + (12 + candidates * (4 + 3)) + (6 + candidates * (3 + 2))
    assert bytes_per_request(model, candidates) == 4 * floats


def test_gemm_einsum_and_convolution_count():
    net = Network()
    turned = net.add("Gemm", ["i", net.normal(3, 4)], (3,), transB=1)
    outer = net.add("Einsum", ["u", turned], (3, 3), equation="ra,rb->rab")
    image = net.add("Unsqueeze", [outer, net.weight(np.array([1]))], (1, 3, 3))
    seen = net.add("Conv", [image, net.normal(2, 1, 2, 2)], (2, 2, 2), kernel_shape=[2, 2])
    model = net.model(score=net.add("ReduceSum", [seen, net.weight(np.array([1, 2, 3]))], (), keepdims=0))
    assert flops_per_request(model, 7) == 2 * 7 * (4 * 3 + 3 * 3 + 2 * 2 * 2 * 4)


def test_a_shape_that_only_a_run_can_tell_is_seen_in_a_run():
    """Which rows are taken depends on data, so inference is at a loss."""
    model = lifted_graph(
        [
            node("ReduceSum", ["items", "axes"], ["total"], keepdims=0),
            node("Equal", ["total", "zero"], ["none"]),
            node("NonZero", ["none"], ["places"]),  # [2, all of them, for zeros]
            node("Cast", ["places"], ["numbers"], to=1),
            node("MatMul", ["w", "numbers"], ["score"]),
        ],
        axes=np.array([2]),
        zero=np.zeros((), np.float32),
        w=np.ones((5, 2), np.float32),
    )
    assert flops_per_request(model, 11) == 2 * 5 * 2 * 11


def test_half_precision_inputs_move_half_the_bytes():
    net = Network()
    model = net.model(score=net.add("MatMul", ["i", net.normal(4, 1)], (1,)))
    single, half = (bytes_per_request(lift(model, handover), 10) for handover in ("float32", "float16"))
    # Cast reads 7 columns of two bytes and writes as many of four.
    assert half - single == 10 * 7 * (2 + 4)
