"""Pass trim: nothing that the outputs do not need, nothing that only passes values on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import make_spec
from compiler_parts import Made, made

from bireme.compiler.check import as_function
from bireme.compiler.load import SavedModel, fill_unused, load
from bireme.compiler.trim import PASS_THROUGH, trim

F = tf.float32


def graph_of(folder, model: Made):
    model.export(folder / "saved_model")
    spec = make_spec(folder / "saved_model", model.user, **model.spec)
    original = SavedModel(spec.saved_model)
    return original, load(original, spec.outputs)


def wrapped(m, age, price, clicks, label):
    x = tf.identity(tf.stop_gradient(age), name="pass_1")
    x, y = tf.raw_ops.IdentityN(input=[x, price], name="pass_2")
    y = tf.ensure_shape(tf.debugging.check_numerics(y, "bad", name="pass_3"), [None], name="pass_4")
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(label > -9), [label], name="a_check")]):
        score = tf.identity(x * y - y)
    return {"score": score, "loss": tf.reduce_mean(tf.square(label - score)) + 0 * clicks, "age_again": x}


INPUTS = {name: (F, [None]) for name in ("age", "price", "clicks", "label")}


def test_inputs_and_nodes_of_other_outputs_are_gone(tmp_path):
    model = made({}, wrapped, ("age",), {"outputs": {"score": "score"}}, **INPUTS)
    _, graph = graph_of(tmp_path, model)
    trimmed = trim(graph)
    assert set(graph.features) == set(INPUTS)
    assert set(trimmed.features) == {"age", "price"}
    assert {node.op for node in trimmed.nodes.values()} == {"Placeholder", "Mul", "Sub"}
    assert trimmed.ancestors(trimmed.outputs.values()) == set(trimmed.nodes)


def test_values_stay_and_the_given_graph_is_not_changed(tmp_path):
    model = made({}, wrapped, ("age",), {"outputs": {"a": "score", "b": "age_again"}}, **INPUTS)
    original, graph = graph_of(tmp_path, model)
    before = {name: (node.op, tuple(node.inputs)) for name, node in graph.nodes.items()}
    trimmed = trim(graph)
    assert {name: (node.op, tuple(node.inputs)) for name, node in graph.nodes.items()} == before
    rows = fill_unused(original, {"age": np.array([1.5, -2.0], "f"), "price": np.array([3.0, 0.5], "f")})
    found, wanted = as_function(trimmed)(rows), original.predict(rows)
    np.testing.assert_array_equal(found["a"], wanted["score"])
    np.testing.assert_array_equal(found["b"], wanted["age_again"])


@pytest.mark.parametrize("name", ["transforms", "sequences", "architectures"])
def test_no_pass_through_is_left_and_trimming_again_changes_nothing(zoo, name):
    trimmed = zoo(name).graphs["trim"]
    assert not PASS_THROUGH & {node.op for node in trimmed.nodes.values()}
    again = trim(trimmed)
    assert list(again.nodes) == list(trimmed.nodes)
    assert again.outputs == trimmed.outputs


def test_label_and_unused_inputs_are_no_features(zoo):
    assert "label" not in zoo("architectures").graphs["trim"].features
    names = [feature.name for feature in zoo("plain_tensorflow").compiled.contract.features]
    assert names == ["clicks", "word", "code", "price"]
