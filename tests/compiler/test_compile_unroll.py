"""Pass unroll: recurrent layers and decided branches become plain ops; what is left is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_dense import Dense, DenseChain
from compiler_families import mask_of
from compiler_parts import variable
from compiler_refusals import refusal, small
from keras import layers

from bireme.compiler.check import as_function
from bireme.compiler.load import load
from bireme.compiler.pipeline import compile_model
from bireme.compiler.rows.costs import flops_per_request
from bireme.compiler.unroll import CONTROL_FLOW, MOST_STEPS, refuse_control_flow, unroll
from bireme.errors import CompileError

L, E = 6, 5


def recurrent(layer: Callable[[], Any], masked: bool = False, sequences: bool = False) -> Dense:
    def build(history: Any, present: Any, target: Any) -> Any:
        x = layer()(history, mask=mask_of(present) if masked else None)
        x = layers.Reshape((-1,))(x) if sequences else x
        return layers.Dense(1)(layers.Concatenate()([x, target]))

    return Dense.of_keras(build, history=("user", (L, E)), present=("user", (L,)), target=("item", (E,)))


RECURRENT: dict[str, Callable[[], Dense]] = {
    "gru": lambda: recurrent(lambda: layers.GRU(4)),
    "gru, masked, all steps": lambda: recurrent(lambda: layers.GRU(4, return_sequences=True), True, True),
    "gru, reset before": lambda: recurrent(lambda: layers.GRU(4, reset_after=False), True),
    "lstm": lambda: recurrent(lambda: layers.LSTM(4)),
    "lstm, masked": lambda: recurrent(lambda: layers.LSTM(4, zero_output_for_mask=True), True),
    "lstm, both ways": lambda: recurrent(
        lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)), False, True
    ),
    "gru, both ways, masked": lambda: recurrent(lambda: layers.Bidirectional(layers.GRU(3)), True),
    "simple, backwards": lambda: recurrent(
        lambda: layers.SimpleRNN(4, return_sequences=True, go_backwards=True), False, True
    ),
    "a cell of two": lambda: recurrent(lambda: layers.RNN([layers.GRUCell(3), layers.LSTMCell(4)])),
}


@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent_layer(case, tmp_path):
    chain = DenseChain(RECURRENT[case](), tmp_path / "saved_model")
    assert not {node.op for node in chain.graph.nodes.values()} & CONTROL_FLOW
    assert chain.graph.library is None
    chain.check()


def test_steps_are_computed_once_per_user(tmp_path):
    """A recurrent layer over the user's history knows nothing of candidates: no product of it is repeated."""
    chain = DenseChain(RECURRENT["gru, masked, all steps"](), tmp_path / "saved_model")
    per_candidate = flops_per_request(chain.lifted, 51) - flops_per_request(chain.lifted, 50)
    assert per_candidate <= 2 * (E + 1)


def dien() -> Dense:
    """GRU over the history, attention of the target on its states, AUGRU over both."""

    class Augru(layers.Layer):
        def build(self, *_: Any) -> None:
            self.w = [self.add_weight(shape=(2 * E, E), name=f"w{i}") for i in range(3)]

        def call(self, states: Any, scores: Any) -> Any:
            def step(h: Any, now: Any) -> Any:
                x, a = now
                u = tf.sigmoid(tf.matmul(tf.concat([x, h], 1), self.w[0])) * a[:, None]
                r = tf.sigmoid(tf.matmul(tf.concat([x, h], 1), self.w[1]))
                return (1 - u) * h + u * tf.tanh(tf.matmul(tf.concat([x, r * h], 1), self.w[2]))

            inputs = (tf.transpose(states, [1, 0, 2]), tf.transpose(scores))
            return tf.scan(step, inputs, initializer=tf.zeros_like(states[:, 0]))[-1]

    def build(history: Any, present: Any, target: Any) -> Any:
        states = layers.GRU(E, return_sequences=True)(history)
        query = layers.RepeatVector(L)(target)
        seen = layers.Concatenate()([query, states, query * states])
        scores = layers.Reshape((L,))(layers.Dense(1)(layers.Dense(6, activation="sigmoid")(seen)))
        scores = layers.Softmax()(scores, mask=mask_of(present))
        interest = Augru()(states, scores)
        return layers.Dense(1, activation="sigmoid")(layers.Concatenate()([interest, target]))

    return Dense.of_keras(build, history=("user", (L, E)), present=("user", (L,)), target=("item", (E,)))


def dsin() -> Dense:
    """Sessions, self-attention within, a BiLSTM across, attention of the target."""

    def build(history: Any, target: Any) -> Any:
        sessions = [history[:, 2 * i : 2 * i + 2] for i in range(3)]
        attend = layers.MultiHeadAttention(2, 4)
        pooled = [layers.GlobalAveragePooling1D()(attend(s, s)) for s in sessions]
        x = layers.Lambda(lambda parts: tf.stack(parts, 1))(pooled)
        x = layers.Bidirectional(layers.LSTM(E, return_sequences=True), merge_mode="ave")(x)
        y = layers.Attention()([layers.Reshape((1, E))(target), x])
        return layers.Dense(1)(layers.Concatenate()([layers.Flatten()(y), target]))

    return Dense.of_keras(build, history=("user", (L, E)), target=("item", (E,)))


@pytest.mark.parametrize("make", [dien, dsin])
def test_family(make, tmp_path):
    DenseChain(make(), tmp_path / "saved_model").check()


def flow(function: Callable[..., Any], **parts: Any) -> Dense:
    return Dense({"x": ("item", (3,)), "u": ("user", (3,))}, function, parts)


def nested(x: Any, u: Any) -> Any:
    def outer(i: Any, total: Any) -> Any:
        inner = tf.while_loop(lambda j, _: j <= i, lambda j, y: (j + 1, tf.tanh(y) + u), (0, total))[1]
        return i + 1, inner + x

    return tf.reduce_sum(tf.while_loop(lambda i, _: i < 3, outer, (0, x * u))[1], -1)


def with_lists(x: Any, u: Any) -> Any:
    """A TensorArray written backwards, read again, stacked and concatenated."""
    array = tf.TensorArray(tf.float32, 4, clear_after_read=False)
    array = tf.while_loop(
        lambda i, _: i < 4, lambda i, a: (i + 1, a.write(3 - i, x * tf.cast(i, tf.float32) + u)), (0, array)
    )[1]
    return (
        tf.reduce_sum(array.stack()[1:], [0, 2])
        + array.read(0)[:, 1]
        + tf.reduce_sum(array.gather([3, 0])[0], 1)
    )


def decided(x: Any, u: Any) -> Any:
    """A learning phase that was frozen, a switch over a constant, a call of a function."""
    training = tf.constant(False)
    y = tf.cond(training, lambda: x * 100.0, lambda: x + u)
    y = tf.switch_case(tf.constant(1), [lambda: y * 0.0, lambda: tf.tanh(y), lambda: y])
    return tf.reduce_sum(tf.function(lambda z: z * 2.0)(y), -1)


def by_shape(x: Any, u: Any) -> Any:
    """A branch on the width of a tensor, a loop over its columns."""
    y = tf.cond(tf.shape(x)[1] > 2, lambda: x * u, lambda: x)
    start = (0, tf.zeros_like(x[:, 0]))
    return tf.while_loop(lambda i, _: i < tf.shape(y)[1], lambda i, s: (i + 1, s * 0.5 + y[:, i]), start)[1]


@pytest.mark.parametrize("function", [nested, with_lists, decided, by_shape])
def test_plain_control_flow(function, tmp_path):
    chain = DenseChain(flow(function), tmp_path / "saved_model")
    flows = {node.op for node in load(chain.original, {}).nodes.values()} & CONTROL_FLOW
    assert flows, "the model was exported without what it tests"
    chain.check()


def test_unrolled_graph_is_the_original(tmp_path):
    chain = DenseChain(flow(nested), tmp_path / "saved_model")
    loaded = load(chain.original, {})
    rows = chain.rows(chain.halves(2, 3))
    wanted = chain.original.predict(rows)["score"]
    for graph in (loaded, unroll(loaded)):
        np.testing.assert_allclose(as_function(graph)(rows)["score"], wanted, rtol=1e-6)


def until_large(x: Any, u: Any) -> Any:
    y = tf.while_loop(lambda y: tf.reduce_max(y) < 9.0, lambda y: (y * 2.0 + 1.0,), (x * x,), name="until")
    return tf.reduce_sum(y[0] + u, -1)


def test_loop_whose_length_depends_on_the_request_is_left(tmp_path):
    """Whoever can run it finds it whole, with its functions."""
    chain = DenseChain(flow(until_large), tmp_path / "saved_model")
    left = unroll(load(chain.original, {}))
    assert {"While", "StatelessWhile"} & {node.op for node in left.nodes.values()}
    rows = chain.rows(chain.halves(1, 4))
    np.testing.assert_allclose(
        as_function(left)(rows)["score"], chain.original.predict(rows)["score"], rtol=1e-6
    )
    with pytest.raises(CompileError) as caught:
        refuse_control_flow(left)
    assert "until" in caught.value.where
    assert "number of steps" in caught.value.message


def test_list_of_an_unknown_loop_is_left_whole(tmp_path):
    """A list that is filled by known steps and read by unknown ones stays TensorFlow's own."""

    def score(x: Any, u: Any) -> Any:
        array = tf.TensorArray(tf.float32, 2, clear_after_read=False).unstack(tf.stack([x, u]))
        read = lambda i, y: (1 - i, y * 2.0 + tf.abs(array.read(i)) + 1.0)  # noqa: E731
        y = tf.while_loop(lambda _, y: tf.reduce_max(y) < 9.0, read, (0, x * x))[1]
        return tf.reduce_sum(y, -1)

    chain = DenseChain(flow(score), tmp_path / "saved_model")
    left = unroll(load(chain.original, {}))
    rows = chain.rows(chain.halves(1, 4))
    np.testing.assert_allclose(
        as_function(left)(rows)["score"], chain.original.predict(rows)["score"], rtol=1e-6
    )


def test_branch_on_the_request_is_refused(export):
    def score(m: Any, age: Any, price: Any) -> Any:
        return tf.cond(tf.reduce_max(price) > 1.0, lambda: price * 2.0, lambda: age, name="either")

    error = refusal(export(small(score)))
    assert "either" in error.where
    assert "tf.where" in error.hint


def test_too_many_steps_are_refused(export):
    def score(m: Any, age: Any, price: Any) -> Any:
        step = lambda i, x: (i + 1, x * 0.99 + age)  # noqa: E731
        return tf.while_loop(lambda i, _: i < MOST_STEPS + 1, step, (0, price), name="endless")[1]

    error = refusal(export(small(score)))
    assert "endless" in error.where
    assert str(MOST_STEPS) in error.message


def test_loop_that_no_output_needs_is_dropped(export):
    def score(m: Any, age: Any, price: Any) -> Any:
        loop = tf.while_loop(lambda x: tf.reduce_max(x) < 9.0, lambda x: (x * 2.0 + 1.0,), (price * price,))
        tf.debugging.assert_positive(loop[0])
        return tf.matmul(tf.stack([age, price], 1), m.w)[:, 0]

    compiled = compile_model(export(small(score, {"w": variable(2, 1)})), "cpu")
    assert "Loop" not in {node.op_type for node in compiled.dense.graph.node}
