"""The cast pass: right types everywhere, Casts at borders only, and numbers as FP16 gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compiler_networks import Network, lift, networks, random_halves, rowwise_scores
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bireme.compiler.dense import runner
from bireme.compiler.fp16.emulate import emulated
from bireme.compiler.fp16.half import MOVES, tensor_types, to_half
from bireme.errors import CompileError

F, H = TensorProto.FLOAT, TensorProto.FLOAT16


def casts(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "Cast"]


def require_only_borders(model: onnx.ModelProto) -> None:
    """No tensor is cast twice to one type, back to where it came from, or to what it is."""
    types = tensor_types(model)
    makers = {output: node for node in model.graph.node for output in node.output}
    seen = set()
    for node in casts(model):
        target = node.attribute[0].i
        assert types[node.input[0]] != target
        assert (node.input[0], target) not in seen
        seen.add((node.input[0], target))
        maker = makers.get(node.input[0])
        while maker is not None and maker.op_type in MOVES and len(maker.input) == 1:
            maker = makers.get(maker.input[0])
        if maker is not None and maker.op_type == "Cast":
            assert types[maker.input[0]] != target, "cast there and back"


@settings(max_examples=40, deadline=None)
@given(networks(), st.sampled_from(["float32", "float16"]), st.data())
def test_any_set_of_fp32_nodes_gives_a_sound_network(model, handover, data):
    lifted = lift(model)
    names = [node.name for node in lifted.graph.node]
    kept = data.draw(st.sets(st.sampled_from(names)))
    half = to_half(lifted, kept, handover)
    onnx.checker.check_model(half, full_check=True)
    require_only_borders(half)
    types = tensor_types(half)
    assert {types[value.name] for value in half.graph.output} == {F}
    assert {types["user"], types["items"]} == {H if handover == "float16" else F}
    for node in half.graph.node:
        if node.op_type != "Cast":
            floats = {types[name] for name in (*node.input, *node.output)} & {F, H}
            assert len(floats) <= 1, node
            if node.op_type not in (*MOVES, "Shape"):
                assert (H if node.name in kept else F) not in floats
    assert to_half(lifted, kept, handover).SerializeToString(deterministic=True) == half.SerializeToString(
        deterministic=True
    )
    halves = random_halves(2, 3)
    feeds = halves if handover == "float32" else {k: v.astype(np.float16) for k, v in halves.items()}
    wanted = rowwise_scores(runner(model), halves)
    plain, exact = runner(half)(feeds), runner(emulated(half))(feeds)
    for task, scores in wanted.items():
        assert plain[task].dtype == exact[task].dtype == np.float32
        scale = 1 + np.abs(scores).max()
        np.testing.assert_allclose(exact[task] / scale, scores / scale, atol=0.05)


@settings(max_examples=15, deadline=None)
@given(networks())
def test_all_nodes_fp32_change_nothing(model):
    lifted = lift(model)
    half = to_half(lifted, [node.name for node in lifted.graph.node], "float32")
    assert not casts(half)
    halves = random_halves(2, 3)
    wanted = runner(lifted)(halves)
    for task, scores in runner(half)(halves).items():
        np.testing.assert_array_equal(scores, wanted[task])


def chain(*nodes: onnx.NodeProto, weights: dict[str, Any]) -> onnx.ModelProto:
    """`x` [n, 3] to `score` [n, 3], nodes named like their outputs."""
    for node in nodes:
        node.name = node.output[0]
    values = [helper.make_tensor_value_info(name, F, ["n", 3]) for name in ("x", "score")]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(list(nodes), "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_emulation_rounds_and_overflows_after_every_op():
    model = chain(
        helper.make_node("Mul", ["x", "thousand"], ["big"]),
        helper.make_node("Mul", ["big", "thousandth"], ["again"]),
        helper.make_node("Add", ["again", "x"], ["score"]),
        weights={"thousand": np.float32(1000), "thousandth": np.float32(0.001)},
    )
    x = np.array([[100.0, 3.3, 1e-6]], np.float16)
    with np.errstate(over="ignore"):
        wanted = (x * np.float16(1000)) * np.float16(0.001) + x
    assert np.isinf(wanted[0, 0])
    found = runner(emulated(to_half(model, [], "float16")))({"x": x})["score"]
    np.testing.assert_array_equal(found, wanted.astype(np.float32))
    full = runner(emulated(to_half(model, ["big", "again"], "float32")))({"x": x.astype(np.float32)})["score"]
    assert full[0, 0] == np.float16(np.float16(100) + np.float16(100))


def test_the_tensor_between_two_fp32_ops_is_never_rounded_on_its_way():
    model = chain(
        helper.make_node("Mul", ["x", "w"], ["big"]),
        helper.make_node("Transpose", ["big"], ["turned"], perm=[1, 0]),
        helper.make_node("Transpose", ["turned"], ["back"], perm=[1, 0]),
        helper.make_node("Relu", ["turned"], ["dead"]),
        helper.make_node("Sub", ["back", "big"], ["score"]),
        weights={"w": np.float32(1.2345678)},
    )
    model.graph.output.append(helper.make_tensor_value_info("dead", F, [3, "n"]))
    half = to_half(model, ["big", "score"], "float32")
    types = tensor_types(half)
    assert [types[name] for name in ("big", "turned", "back", "score")] == [F] * 4
    assert [node.output[0] for node in casts(half)] == ["turned_half", "dead"]


def attention() -> onnx.ModelProto:
    """A masked softmax as in DIN, with a mask from a comparison, lengths from Shape and Range."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["seen"]),
        helper.make_node("Cast", ["seen"], ["weight"], to=F),
        helper.make_node("Where", ["seen", "x", "never"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["share"], axis=-1),
        helper.make_node("Shape", ["x"], ["shape"], start=1, end=2),
        helper.make_node("Squeeze", ["shape", "first"], ["length"]),
        helper.make_node("Cast", ["length"], ["end"], to=F),
        helper.make_node("Range", ["zero", "end", "one"], ["places"]),
        helper.make_node("Mul", ["share", "places"], ["placed"]),
        helper.make_node("Mul", ["placed", "weight"], ["score"]),
    ]
    return chain(
        *nodes,
        weights={
            "zero": np.float32(0),
            "one": np.float32(1),
            "never": np.float32(-(2.0**15)),
            "first": np.array([0]),
        },
    )


def test_casts_where_range_and_shape_are_typed():
    model = attention()
    half = to_half(model, [], "float16")
    require_only_borders(half)
    types = tensor_types(half)
    assert types["places"] == F  # ONNX has no Range in FP16
    assert [types[name] for name in ("masked", "share", "weight", "placed")] == [H] * 4
    assert (types["seen"], types["shape"]) == (TensorProto.BOOL, TensorProto.INT64)
    x = np.array([[1.0, 2.0, -1.0], [-1, -2, -3]], np.float16)
    wanted = runner(model)({"x": x.astype(np.float32)})["score"]
    np.testing.assert_allclose(runner(half)({"x": x})["score"], wanted, atol=1e-3)
    np.testing.assert_allclose(runner(emulated(half))({"x": x})["score"], wanted, atol=1e-3)


def test_constant_beyond_fp16_is_refused_by_name_unless_its_node_stays():
    model = chain(helper.make_node("Add", ["x", "far"], ["score"]), weights={"far": np.float32(1e6)})
    model.graph.node[0].doc_string = "tower/shift/Add"
    with pytest.raises(CompileError, match=r"node 'tower/shift/Add'.*constant 1e\+06"):
        to_half(model, [], "float32")
    assert not casts(to_half(model, ["score"], "float32"))
    endless = chain(helper.make_node("Add", ["x", "far"], ["score"]), weights={"far": np.float32(-np.inf)})
    assert casts(to_half(endless, [], "float32"))


def test_names_in_tensorflow_survive_lifting():
    net = Network()
    hidden = net.add("MatMul", [net.add("Concat", ["u", "i"], (7,), axis=1), net.normal(7, 4)], (4,))
    model = net.model(
        score=net.add("ReduceSum", [net.add("Relu", [hidden], (4,)), net.weight(np.array([1]))], (1,))
    )
    origins = {node.op_type: node.doc_string for node in lift(model).graph.node}
    assert origins["MatMul"] == "my_MatMul_1"
    assert origins["Relu"] == "my_Relu_2"
