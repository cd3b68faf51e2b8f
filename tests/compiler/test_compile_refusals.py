"""What cannot be carried over exactly is refused with one error that names the op and its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from compiler_models import WORDS, Inputs, Made, head, keras_model, made, table, variable
from keras import layers, ops

from bireme.compiler.pipeline import compile_model
from bireme.errors import CompileError

S, F, I32, I64 = tf.string, tf.float32, tf.int32, tf.int64


def refusal(spec: Any) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_model(spec, "cpu")
    error = caught.value
    assert error.hint, "an error without a remedy"
    assert "\n" not in str(error)
    return error


def small(function: Callable[..., Any], parts: dict[str, Any] | None = None, **inputs: Any) -> Made:
    """A plain TensorFlow model with a user feature `age` and an item feature `price` besides `inputs`."""

    def call(m: Any, age: Any, price: Any, **rest: Any) -> Any:
        return {"score": function(m, age, price, **rest)}

    return made(parts or {}, call, ("age",), age=(F, [None]), price=(F, [None]), **inputs)


def lookup_of_ids(make_ids: Callable[..., Any], parts: dict[str, Any] | None = None, **inputs: Any) -> Made:
    """A table read at ids that `make_ids` makes."""

    def score(m: Any, age: Any, price: Any, **rest: Any) -> Any:
        rows = tf.nn.embedding_lookup(m.rows, make_ids(m, price, **rest))
        return tf.reduce_sum(rows, -1) + age + price

    return small(score, {"rows": variable(9, 3), **(parts or {})}, **inputs)


FEATURE_SIDE: dict[str, tuple[Callable[[], Made], str, str]] = {
    "text from a number": (
        lambda: lookup_of_ids(
            lambda m, price, code: tf.strings.to_hash_bucket_fast(tf.as_string(code, name="spell"), 9),
            code=(I64, [None]),
        ),
        "AsString",
        "spell",
    ),
    "salted hash": (
        lambda: lookup_of_ids(
            lambda m, price, word: tf.strings.to_hash_bucket_strong(word, 9, key=[1, 2], name="salted"),
            word=(S, [None]),
        ),
        "StringToHashBucketStrong",
        "salted",
    ),
    "cross of two words": (
        lambda: lookup_of_ids(
            lambda m, price, a, b: tf.strings.to_hash_bucket_fast(tf.strings.join([a, b], name="cross"), 9),
            a=(S, [None]),
            b=(S, [None]),
        ),
        "StringJoin",
        "cross",
    ),
    "integer modulo": (
        lambda: lookup_of_ids(
            lambda m, price, code: tf.math.floormod(code, 9, name="fold"), code=(I64, [None])
        ),
        "FloorMod",
        "fold",
    ),
    "buckets of a transformed number": (
        lambda: lookup_of_ids(
            lambda m, price: tf.raw_ops.Bucketize(
                input=tf.math.log1p(price), boundaries=[0.0, 1.0], name="cutting"
            )
        ),
        "Bucketize",
        "cutting",
    ),
    "ids narrowed to a byte": (
        lambda: lookup_of_ids(
            lambda m, price, code: tf.cast(tf.cast(code, tf.uint8, name="narrow"), I32), code=(I64, [None])
        ),
        "Cast",
        "narrow",
    ),
    "vocabulary of hashed unknowns": (
        lambda: lookup_of_ids(
            lambda m, price, word: tf.where(
                tf.equal(m.words.lookup(word), -1, name="is_unknown"),
                tf.strings.to_hash_bucket_fast(word, 2) + 7,
                m.words.lookup(word),
            ),
            {"words": table(["a", "b"], [0, 1], -1)},
            word=(S, [None]),
        ),
        "Equal",
        "is_unknown",
    ),
    "ids as numbers": (
        lambda: small(
            lambda m, age, price, word: (
                age + price + tf.cast(tf.strings.to_hash_bucket_fast(word, 9), F, name="as_number")
            ),
            word=(S, [None]),
        ),
        "Cast",
        "as_number",
    ),
    "text compared": (
        lambda: small(
            lambda m, age, price, word: age + price + tf.cast(tf.equal(word, "x", name="is_x"), F),
            word=(S, [None]),
        ),
        "Equal",
        "is_x",
    ),
    "unpooled sequence": (
        lambda: small(
            lambda m, age, price, clicks: (
                age + price + tf.reduce_max(tf.gather(m.rows, clicks), [1, 2], name="peak")
            ),
            {"rows": variable(9, 3)},
            clicks=(I64, [None, None]),
        ),
        "Max",
        "peak",
    ),
    "mean of a sequence that may be empty": (
        lambda: small(
            lambda m, age, price, clicks: (
                age + price + tf.reduce_sum(tf.reduce_mean(tf.gather(m.rows, clicks), 1, name="mean"), -1)
            ),
            {"rows": variable(9, 3)},
            clicks=(I64, [None, None]),
        ),
        "Mean",
        "mean",
    ),
    "mask of another feature": (
        lambda: small(
            lambda m, age, price, clicks, carts: (
                age
                + price
                + tf.reduce_sum(
                    tf.multiply(
                        tf.gather(m.rows, clicks), tf.cast(carts != 0, F)[:, :, tf.newaxis], name="foreign"
                    ),
                    [1, 2],
                )
            ),
            {"rows": variable(9, 3)},
            clicks=(I64, [None, None]),
            carts=(I64, [None, None]),
        ),
        "Mul",
        "foreign",
    ),
    "a table that is computed": (
        lambda: small(
            lambda m, age, price, code: (
                age
                + price
                + tf.reduce_sum(tf.gather(tf.nn.l2_normalize(m.rows, -1), code, name="computed"), -1)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "GatherV2",
        "computed",
    ),
    "columns of a table": (
        lambda: small(
            lambda m, age, price, code: (
                age + price + tf.reduce_sum(tf.gather(m.rows, code, axis=1, name="sideways"), 0)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "GatherV2",
        "sideways",
    ),
    "one-hot ids": (
        lambda: small(
            lambda m, age, price, code: age + price + tf.one_hot(code, 4, name="hot")[:, 1],
            code=(I64, [None]),
        ),
        "OneHot",
        "hot",
    ),
    "a vector of numbers": (
        lambda: small(
            lambda m, age, price, vector: age + price + tf.reduce_sum(vector, 1, name="added"),
            vector=(F, [None, 4]),
        ),
        "Sum",
        "added",
    ),
    "half precision": (
        lambda: small(
            lambda m, age, price: tf.cast(tf.cast(age, tf.float16, name="halved") * 2, F) + price,
        ),
        "Cast",
        "halved",
    ),
    "a table that is a weight, too": (
        lambda: small(
            lambda m, age, price, code: (
                age + price + tf.reduce_sum(tf.matmul(tf.gather(m.rows, code), m.rows, transpose_b=True), -1)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "ReadVariableOp",
        "",
    ),
}


@pytest.mark.parametrize("case", FEATURE_SIDE)
def test_transform_without_a_rule_is_named(export, case):
    make, op, node = FEATURE_SIDE[case]
    error = refusal(export(make()))
    assert error.where.startswith(f"op {op} (node '")
    assert node in error.where


def test_mean_that_divides_zero_by_zero_is_refused_with_the_remedy(export):
    """What Keras makes of `GlobalAveragePooling1D` behind a mask: NaN for an empty history."""
    inputs = Inputs()
    clicks, price = inputs("clicks", "string", (None,)), inputs("price", "float32", (1,))
    ids = layers.StringLookup(vocabulary=WORDS, mask_token="")(clicks)
    pooled = layers.GlobalAveragePooling1D(name="pooling")(layers.Embedding(7, 3, mask_zero=True)(ids))
    out = {"score": head(ops.concatenate([pooled, price], -1), "h")}
    error = refusal(export(Made(keras_model(inputs, out), ("clicks",))))
    assert "op RealDiv" in error.where
    assert "pooling" in error.where
    assert "clicks" in error.message
    assert "divide_no_nan" in error.hint


def test_several_places_for_unknown_words_are_refused(export):
    inputs = Inputs()
    word, price = inputs("word", "string"), inputs("price", "float32", (1,))
    ids = layers.StringLookup(vocabulary=WORDS, num_oov_indices=3, name="many_unknown")(word)
    out = {"score": head(ops.concatenate([layers.Embedding(8, 3)(ids), price], -1), "h")}
    error = refusal(export(Made(keras_model(inputs, out), ("word",))))
    assert "many_unknown" in error.where


X = tf.TensorSpec([None, 4], F)
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


def test_loop_is_refused(export):
    def score(m: Any, age: Any, price: Any) -> Any:
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * age), (0, price), name="again")[1]

    error = refusal(export(small(score)))
    assert "control flow" in error.message
    assert "again" in error.where


def test_op_that_onnx_has_not_is_refused(export):
    """tf2onnx only logs an error here and returns a graph that no runtime loads."""
    error = refusal(export(small(lambda m, age, price: tf.math.lgamma(age + price, name="gamma_function"))))
    assert "dense network" in error.where
    assert "Lgamma" in error.message
    assert "gamma_function" in error.message


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


def test_doubles_inside_are_refused(export):
    error = refusal(
        export(
            small(
                lambda m, age, price, big: tf.cast(tf.add(big, 0.5, name="in_double"), F) + age + price,
                big=(tf.float64, [None]),
            )
        )
    )
    assert "in_double" in error.where
    assert "'big'" in error.message


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
