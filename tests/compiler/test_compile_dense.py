"""Pass dense: a whole ONNX or an error; the same bytes every time."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
import tensorflow as tf
from compiler_parts import made

from bireme.compiler.dense import OPSET, runner, to_onnx
from bireme.compiler.graph import Graph, Node
from bireme.compiler.pipeline import compile_model
from bireme.compiler.rows.canonical import canonicalise
from bireme.errors import CompileError

F = tf.float32


def graph_with(op: str, attr: dict | None = None) -> Graph:
    """One op on a placeholder [rows, 3]."""
    shape = tf.TensorShape([None, 3]).as_proto()
    kind = tf.compat.v1.AttrValue(type=F.as_datatype_enum)
    placeholder = Node("x", "Placeholder", [], {"dtype": kind, "shape": tf.compat.v1.AttrValue(shape=shape)})
    node = Node("layer/the_node", op, ["x:0"], attr if attr is not None else {"T": kind})
    return Graph({"x": placeholder, node.name: node}, {"x": "x"}, {"score": node.output}, {})


@pytest.mark.parametrize("op", ["Lgamma", "Digamma", "Inv", "BesselI0e"])
def test_op_that_tf2onnx_only_logs_about_is_an_error(op):
    with pytest.raises(CompileError) as caught:
        to_onnx(graph_with(op))
    assert op in caught.value.message
    assert "the_node" in caught.value.message


def test_logging_is_left_as_it_was():
    logger = logging.getLogger("tf2onnx")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with pytest.raises(CompileError):
        to_onnx(graph_with("Lgamma"))
    to_onnx(graph_with("Relu"))
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_a_graph_that_is_no_graph_is_an_error():
    with pytest.raises(CompileError, match="dense network"):
        to_onnx(graph_with("MatMul", {}))


@pytest.mark.parametrize("op", ["Log1p", "Erfc", "Expm1"])
def test_ops_that_tf2onnx_does_not_know_are_spelled_out(op):
    values = np.linspace(-0.9, 3, 60, dtype=np.float32).reshape(-1, 3)
    wanted = getattr(tf.raw_ops, op)(x=values).numpy()
    np.testing.assert_allclose(runner(to_onnx(graph_with(op)))({"x": values})["score"], wanted, atol=1e-6)


def test_a_broken_onnx_is_an_error_at_the_latest_when_it_is_run():
    model = to_onnx(graph_with("Relu"))
    model.graph.node[0].op_type = "NoSuchOp"
    with pytest.raises(CompileError, match="NoSuchOp"):
        runner(model)


@pytest.mark.parametrize("name", ["architectures", "transforms"])
def test_compiling_twice_in_one_process_gives_equal_bytes(zoo, name):
    example = zoo(name)
    again = compile_model(example.spec, "cpu")
    assert again.dense.SerializeToString(deterministic=True) == example.compiled.dense.SerializeToString(
        deterministic=True
    )
    assert again.plan.to_json() == example.compiled.plan.to_json()
    assert again.example == example.compiled.example


@pytest.mark.parametrize("name", ["architectures", "transforms", "clashing_names"])
def test_names_say_only_where_a_node_stands(zoo, name):
    dense = zoo(name).compiled.dense
    onnx.checker.check_model(dense, full_check=True)
    assert [node.name for node in dense.graph.node] == [
        f"{node.op_type}_{k}" for k, node in enumerate(dense.graph.node)
    ]
    assert not any(node.doc_string for node in dense.graph.node)
    assert not dense.graph.value_info
    assert [entry.version for entry in dense.opset_import] == [OPSET]
    tensors = [output for node in dense.graph.node for output in node.output]
    assert len(set(tensors)) == len(tensors)
    assert b"StatefulPartitionedCall" not in dense.SerializeToString()
    # TensorRT 8.6 parses `start` and `end` of a Shape, and ignores them.
    assert not [node for node in dense.graph.node if node.op_type == "Shape" and node.attribute]


def test_equal_graphs_under_other_names_become_equal():
    def build(prefix: str) -> onnx.ModelProto:
        text = f"""<ir_version: 8, opset_import: ["" : 17]>
            {prefix}g (float[n, 2] x) => (float[n, 2] y) <float[2] {prefix}w = {{1, 2}}> {{
                {prefix}a = Add(x, {prefix}w)
                y = Relu({prefix}a)
            }}"""
        model = onnx.parser.parse_model(text)
        canonicalise(model)
        return model

    assert build("p_").SerializeToString() == build("q").SerializeToString()


def test_outputs_and_inputs_keep_their_names_whatever_they_are():
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 2] w0) => (float[n, 2] t0, float[n, 2] t1) <float[2] k = {1, 2}> {
            a = Add(w0, k)
            t1 = Relu(a)
            t0 = Neg(t1)
        }"""
    )
    canonicalise(model)
    onnx.checker.check_model(model, full_check=True)
    found = runner(model)({"w0": np.array([[-3, 1]], np.float32)})
    np.testing.assert_array_equal(found["t1"], [[0, 3]])
    np.testing.assert_array_equal(found["t0"], [[0, -3]])


def test_an_output_may_be_an_input_and_two_tasks_one_output(export):
    model = made(
        {},
        lambda m, age, price: {"price": price, "age": age, "product": age * price},
        ("age",),
        {"outputs": {"a": "price", "b": "price", "c": "age", "d": "product"}},
        age=(F, [None]),
        price=(F, [None]),
    )
    compiled = compile_model(export(model), "cpu")
    halves = {"user": np.array([[2.0]], "f"), "items": np.array([[[3.0], [5.0]]], "f")}
    found = runner(compiled.dense)(halves)
    assert {task: scores.tolist() for task, scores in found.items()} == {
        "a": [[3, 5]],
        "b": [[3, 5]],
        "c": [[2, 2]],
        "d": [[6, 10]],
    }


def test_fewer_operations_than_row_by_row(zoo):
    from bireme.compiler.rows.costs import flops_per_request

    compiled = zoo("architectures").compiled
    one, many = (flops_per_request(compiled.dense, n) for n in (1, 100))
    assert many < 0.9 * flops_per_request(compiled.rowwise, 100)
    # For one candidate nothing is saved; a mixture of experts, now a product, counts where it did not before.
    assert one <= 1.05 * flops_per_request(compiled.rowwise, 1)
