"""Tables, dtypes and shapes that cannot be served are refused, naming the table, the input or the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from compiler_parts import Inputs, Made, head, made, table, variable
from compiler_refusals import I64, F, S, lookup_of_ids, refusal, small
from keras import layers

TABLES: dict[str, tuple[Callable[[], Made], str]] = {
    "hash": (
        lambda: lookup_of_ids(
            lambda m, price, word: tf.strings.to_hash_bucket_fast(word, 10), word=(S, [None])
        ),
        "feature 'word': can get id 9 from its hash bucket",
    ),
    "vocabulary": (
        lambda: lookup_of_ids(
            lambda m, price, word: m.words.lookup(word),
            {"words": table(["a", "b"], [3, 12], 0)},
            word=(S, [None]),
        ),
        "feature 'word': can get id 12 from its vocabulary",
    ),
    "unknown words": (
        lambda: lookup_of_ids(
            lambda m, price, word: m.words.lookup(word),
            {"words": table(["a", "b"], [3, 1], 9)},
            word=(S, [None]),
        ),
        "feature 'word': can get id 9 from its vocabulary",
    ),
    "integers": (
        lambda: lookup_of_ids(
            lambda m, price, code: m.codes.lookup(code),
            {"codes": table([7, 8], [0, 70], 0)},
            code=(I64, [None]),
        ),
        "feature 'code': can get id 70 from its int vocabulary",
    ),
    "edges": (
        lambda: lookup_of_ids(
            lambda m, price: tf.raw_ops.Bucketize(input=price, boundaries=[float(k) for k in range(9)])
        ),
        "feature 'price': can get id 9 from its bucketize",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_id_that_no_row_of_the_table_has_is_refused(export, case):
    make, message = TABLES[case]
    error = refusal(export(make()))
    assert message in str(error)
    assert "rows 0 to 8" in error.message
    assert "table 'Variable'" in error.message


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_table_of_another_dtype_is_refused(export, dtype):
    rows = tf.Variable(np.ones((9, 3)), dtype=dtype, name="narrow_table")
    model = small(
        lambda m, age, price, code: age + price + tf.reduce_sum(tf.cast(tf.gather(m.rows, code), F), -1),
        {"rows": rows},
        code=(I64, [None]),
    )
    error = refusal(export(model))
    assert "narrow_table" in error.where
    assert dtype in error.message


def test_model_in_double_precision_is_refused(export):
    keras.config.set_dtype_policy("float64")
    try:
        inputs = Inputs()
        x = layers.Concatenate()([inputs("age", "float64", (1,)), inputs("price", "float64", (1,))])
        model = Made(keras.Model(dict(inputs), {"score": head(x, "h")}), ("age",))
    finally:
        keras.config.set_dtype_policy("float32")
    error = refusal(export(model))
    assert "'score'" in error.where
    assert "float64" in error.message


def test_score_that_is_a_vector_is_refused(export):
    error = refusal(export(small(lambda m, age, price: tf.stack([age, price, age], 1))))
    assert "'score'" in error.where
    assert "[3] values" in error.message


def test_score_that_no_request_changes_is_refused(export):
    def call(m: Any, age: Any, price: Any) -> Any:
        return {"score": age * price, "version": m.version}

    model = made({"version": variable(1)}, call, ("age",), age=(F, [None]), price=(F, [None]))
    error = refusal(export(model))
    assert "'version'" in error.where


@pytest.mark.parametrize(
    ("dtype", "shape", "said"),
    [
        (F, [None, 2, 2], "(None, 2, 2)"),
        (F, [3], "(3,)"),
        (F, [], "()"),
        (F, None, "<unknown>"),
        (F, [None, 0], "(None, 0)"),
        (tf.uint8, [None], "uint8"),
        (tf.float16, [None], "float16"),
    ],
)
def test_input_of_an_odd_shape_or_dtype_is_refused(export, dtype, shape, said):
    def score(m: Any, age: Any, price: Any, odd: Any) -> Any:
        return age + price + tf.reduce_sum(tf.cast(odd, F))

    error = refusal(export(small(score, odd=(dtype, shape))))
    assert error.where == "input 'odd'"
    assert said in error.message


def test_table_without_columns_is_refused(export):
    model = small(
        lambda m, age, price, code: age + price + tf.reduce_sum(tf.gather(m.rows, code), -1),
        {"rows": tf.Variable(tf.zeros([9, 0]), name="hollow")},
        code=(I64, [None]),
    )
    error = refusal(export(model))
    assert "hollow" in error.where
    assert "empty" in error.message
