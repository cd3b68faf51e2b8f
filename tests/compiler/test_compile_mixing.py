"""Dense ops that could mix candidates, or that ONNX lacks, are refused with the op's name and its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from compiler_parts import Inputs, Made, head, keras_model, variable
from compiler_refusals import F, refusal, small
from keras import layers

MIXING: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "softmax over rows": (lambda x, s: tf.nn.softmax(s, axis=0), "Softmax"),
    "sum over rows": (lambda x, s: s / tf.reduce_sum(s), "ReduceSum"),
    "mean over rows": (lambda x, s: s - tf.reduce_mean(x, axis=0)[0], "ReduceMean"),
    "max over rows and columns": (lambda x, s: s - tf.reduce_max(x), "ReduceMax"),
    "cumulated": (lambda x, s: tf.cumsum(s), "CumSum"),
    "sorted": (lambda x, s: tf.nn.top_k(s, k=1, name="best")[0] + s, "TopK"),
    "across rows": (lambda x, s: tf.reshape(tf.transpose(x), [-1, 4])[:, 0], "Transpose"),
    "rows times rows": (lambda x, s: tf.reduce_sum(tf.matmul(x, x, transpose_b=True), 1), "Transpose"),
    "diagonal of rows times rows": (lambda x, s: tf.linalg.diag_part(tf.tensordot(s, s, 0)), "If"),
    "rows against rows": (lambda x, s: tf.reduce_sum(x[:, :1] + s, -1), "Add"),
    "first row": (lambda x, s: s - s[0], "Slice"),
    "every second row": (lambda x, s: s + 0 * tf.repeat(s[::2], 2)[: tf.shape(s)[0]], "Slice"),
    "number of rows": (lambda x, s: s / tf.cast(tf.shape(s)[0], F), "Shape"),
}


@pytest.mark.parametrize("case", MIXING)
def test_op_that_mixes_candidates_is_named(export, case):
    mix, op = MIXING[case]
    matrix = variable(2, 4, seed=4)

    def score(m: Any, age: Any, price: Any) -> Any:
        x = tf.tanh(tf.matmul(tf.stack([age, price], 1), m.matrix))
        return mix(x, x[:, 3])

    error = refusal(export(small(score, {"matrix": matrix})))
    assert error.where.startswith(f"op {op} (node '"), error
    assert "candidates" in error.message or "control flow" in error.message


def test_statistics_of_the_batch_are_refused(export):
    """A BatchNormalization that was exported in training mode."""
    inputs = Inputs()
    age, price = inputs("age", "float32", (1,)), inputs("price", "float32", (1,))
    x = layers.BatchNormalization(name="learning")(layers.Concatenate()([age, price]), training=True)
    error = refusal(export(Made(keras_model(inputs, {"score": head(x, "h")}), ("age",))))
    assert error.where.startswith("op Reduce")
    assert "learning" in error.where


def test_loop_that_one_row_prolongs_for_all_is_refused(export):
    def score(m: Any, age: Any, price: Any) -> Any:
        again = tf.while_loop(
            lambda x: tf.reduce_max(x) < 9.0, lambda x: (x * 2.0 + 1.0,), (age * age,), name="again"
        )
        return again[0] + price

    error = refusal(export(small(score)))
    assert "other rows" in error.message
    assert "again" in error.where
    assert "tf.where" in error.hint
