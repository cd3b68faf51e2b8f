"""Networks for TensorRT 8.6 hold an op that its graph compiler alone has, and compute what they did."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bireme.engine.whole import as_one


def network(nodes: list[onnx.NodeProto], rest: tuple[object, ...] = ("n", 3)) -> bytes:
    random = np.random.default_rng(5)
    weights = {"w": (3, 4), "v": (4, 1), "cube": (2, 3, 4), "one": (4,)}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["u", *rest])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["u", *("?" for _ in rest)])],
        [
            numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def ops(content: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_model_from_string(content).graph.node]


@pytest.mark.parametrize(("rest", "shape"), [(("n", 3), (2, 5, 3)), ((3,), (2, 3))])
def test_products_with_weights_become_einsum_and_compute_the_same(rest, shape):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "v"], ["y"], "second"),
    ]
    content = network(nodes, rest)
    whole = as_one(content)
    assert ops(whole) == ["Einsum", "Relu", "Einsum"]
    assert [node.name for node in onnx.load_model_from_string(whole).graph.node] == [
        "first",
        "relu",
        "second",
    ]
    onnx.checker.check_model(onnx.load_model_from_string(whole), full_check=True)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wanted, found = (onnxruntime.InferenceSession(c).run(None, {"x": x})[0] for c in (content, whole))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_taken_as_a_whole_anyway_stays_to_the_byte():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "one"], ["y"], axis=-1),
    ]
    content = network(nodes)
    assert as_one(content) is content


def test_other_products_stay():
    """Of two computed tensors, and with a weight of more dimensions."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    content = network(nodes)
    assert as_one(content) is content
    content = network([helper.make_node("MatMul", ["x", "cube"], ["y"])])
    assert as_one(content) is content


def test_an_opset_without_einsum_stays():
    model = onnx.load_model_from_string(network([helper.make_node("MatMul", ["x", "w"], ["y"])]))
    model.opset_import[0].version = 11
    content = bytes(model.SerializeToString())
    assert as_one(content) is content


def test_what_is_no_onnx_is_left_to_the_builder(monkeypatch):
    assert as_one(b"\x80garbage") == b"\x80garbage"
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert as_one(b"anything") == b"anything"
