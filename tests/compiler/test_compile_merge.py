"""Pass merge: what is computed twice is computed once, and nothing else is."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf
from compiler_parts import made, variable

from bireme.compiler.check import as_function
from bireme.compiler.graph import Graph, read_graph_def
from bireme.compiler.merge import merge
from bireme_runtime.plan import Embed, HashBucket

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def graph_of(function, dtype=tf.float32, shape=(None, 3, 4)):
    """A graph with one feature `x` and as many outputs as the function gives."""
    concrete = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec(shape, dtype, "x"))
    nodes = {node.name: node for node in read_graph_def(concrete.graph.as_graph_def())}
    outputs = {str(index): value.name for index, value in enumerate(concrete.outputs)}
    result = Graph(nodes, {"x": "x"}, outputs, {})
    return result.keep(result.ancestors(outputs.values()) | {"x"})


def merged(function, values=VALUES, **kind):
    """The merged graph, which gives what the function gives, to the bit."""
    before = graph_of(function, **kind)
    after = merge(before)
    wanted = as_function(before)({"x": values})
    for name, found in as_function(after)({"x": values}).items():
        np.testing.assert_array_equal(found, wanted[name], strict=True)
    return after


def ops(graph):
    """Op → how often, without what every graph of these tests has."""
    names = [node.op for node in graph.nodes.values() if node.op not in ("Const", "Placeholder", "Identity")]
    return {name: names.count(name) for name in sorted(set(names))}


def test_equal_subgraphs_become_one():
    weight = tf.constant(np.ones((4, 5), np.float32))
    same = np.ones((4, 5), np.float32)

    def call(x):
        return tf.nn.relu(tf.einsum("blk,kd->bld", x, weight)) + tf.nn.relu(
            tf.einsum("blk,kd->bld", x, tf.constant(same))
        )

    assert ops(merged(call)) == {"AddV2": 1, "Einsum": 1, "Relu": 1}


def test_what_differs_in_an_attribute_an_input_or_the_order_of_inputs_stays():
    def call(x):
        y = tf.exp(x)
        transposed = tf.matmul(x, y, transpose_b=True), tf.matmul(y, x, transpose_b=True)
        return (*transposed, tf.reduce_sum(x, 1), tf.reduce_sum(x, 1, keepdims=True), tf.reduce_sum(x, 2))

    assert ops(merged(call)) == {"BatchMatMulV2": 2, "Exp": 1, "Sum": 3}


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.0, -0.0), (1.0, np.nextafter(np.float32(1), np.float32(2)))],
    ids=["signed zero", "one bit"],
)
def test_constants_are_compared_to_the_bit(first, second):
    def call(x):
        return tf.math.divide(1.0, tf.sign(x) * 0 + first), tf.math.divide(1.0, tf.sign(x) * 0 + second)

    assert ops(merged(call))["RealDiv"] == 2


def test_constants_of_another_dtype_or_shape_stay():
    def call(x):
        return tf.reshape(x, [-1, 12]) + tf.constant([1.0]), tf.reshape(x, [-1, 12]) + tf.constant([[1.0]])

    assert ops(merged(call)) == {"AddV2": 2, "Reshape": 1}


def test_random_ops_stay():
    def call(x):
        return tf.random.uniform(tf.shape(x)), tf.random.uniform(tf.shape(x))

    assert ops(merge(graph_of(call)))["RandomUniform"] == 2


def test_every_output_of_an_op_with_several_is_redirected():
    def call(x):
        first, second = tf.split(x, 2, axis=2)
        again, other = tf.split(x, 2, axis=2)
        values, places = tf.math.top_k(x, 2)
        more, where = tf.math.top_k(x, 2)
        return first * 2 + again, second * 3 + other, values + more, places * where

    assert ops(merged(call)) == {"AddV2": 3, "Mul": 3, "Split": 1, "TopKV2": 1}


def test_outputs_that_are_equal_share_a_tensor():
    graph = merged(lambda x: (tf.exp(x), tf.exp(x)))
    assert len(set(graph.outputs.values())) == 1
    assert list(graph.outputs) == ["0", "1"]


def test_reshapes_that_end_where_they_began_are_gone():
    def call(x):
        flat = tf.reshape(x, [-1, 12])
        back = tf.reshape(flat, [-1, 3, 4])
        wide = tf.squeeze(tf.expand_dims(back, 2), [2])
        rows = tf.shape(x)[0]
        return tf.exp(tf.reshape(wide, tf.stack([rows, 3, 4])))

    assert ops(merged(call)) == {"Exp": 1}


def test_reshapes_that_only_may_end_where_they_began_stay():
    """Two open dimensions: [2, 6] to [3, 4] has the same static shape."""

    def call(x):
        return tf.exp(tf.reshape(x, tf.stack([tf.size(x) // 4, tf.size(x) // 3])))

    values = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert ops(merged(call, values, shape=(None, None)))["Reshape"] == 1


def test_transpositions_that_cancel_out_are_gone():
    def call(x):
        turned = tf.transpose(x, [0, 2, 1])
        around = tf.transpose(tf.transpose(x, [1, 2, 0]), [2, 0, 1])
        return tf.exp(tf.transpose(turned, [0, 2, 1])), tf.tanh(tf.transpose(x, [0, 1, 2])), tf.sin(around)

    assert ops(merged(call)) == {"Exp": 1, "Sin": 1, "Tanh": 1}


def test_transpositions_that_only_look_so_stay():
    graph = merged(lambda x: tf.exp(tf.transpose(tf.transpose(x, [1, 2, 0]), [1, 2, 0])))
    assert ops(graph) == {"Exp": 1, "Transpose": 2}


def test_casts_there_and_back_go_only_without_loss():
    def call(x):
        exact = tf.cast(tf.cast(x, tf.float64), tf.float32)
        rounded = tf.cast(tf.cast(x, tf.int32), tf.float32)
        return tf.exp(exact), tf.exp(rounded)

    graph = merged(call, VALUES + np.float32(0.5))
    assert ops(graph) == {"Cast": 2, "Exp": 2}


def test_two_lookups_of_the_same_ids_cross_once(parity):
    """Also where one of them has a dimension more."""
    parts = {"rows": variable(30, 4, seed=1, name="rows"), "kernel": variable(9, 1, seed=2)}

    def call(m, word, price):
        first = tf.gather(m.rows, tf.strings.to_hash_bucket_fast(word, 30))
        again = tf.gather(m.rows, tf.strings.to_hash_bucket_fast(word, 30))
        apart = tf.gather(m.rows, tf.strings.to_hash_bucket_fast(word[:, tf.newaxis], 30))
        x = tf.concat([first * again, tf.reduce_sum(apart, 1), price[:, tf.newaxis]], 1)
        scores = tf.matmul(x, m.kernel)
        return {"score": scores[:, 0], "twin": tf.matmul(x, m.kernel)[:, 0]}

    model = made(parts, call, ("word",), word=(tf.string, [None]), price=(tf.float32, [None]))
    compiled = parity(model)
    assert [type(step) for step in compiled.plan.steps if not hasattr(step, "chain")] == [HashBucket, Embed]
    assert (compiled.plan.user_width, compiled.plan.item_width) == (4, 1)
    assert {tuple(b.shape) for b in compiled.split.boundaries if b.side == "user"} == {(4,), (1, 4)}


def test_a_graph_of_thousands_of_nodes_takes_seconds_at_most():
    """Half of 6,000 nodes is the other half again."""

    def call(x):
        halves = []
        for _ in range(2):
            y = x
            for _ in range(1500):
                y = tf.tanh(y) + x
            halves.append(y)
        return tf.add_n(halves)

    graph = graph_of(call)
    started = time.perf_counter()
    result = merge(graph)
    assert time.perf_counter() - started < 20
    assert ops(result) == {"AddN": 1, "AddV2": 1500, "Tanh": 1500}
