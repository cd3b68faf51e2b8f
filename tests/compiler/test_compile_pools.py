"""The usual ways to make one vector of a sequence, and what an empty one does."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import Served, make_spec
from compiler_parts import Inputs, Made, column, head, keras_model, made, variable
from keras import layers, ops

from bireme.compiler.pipeline import compile_model
from bireme_runtime.requests import RequestError

F, I64 = tf.float32, tf.int64
ROWS = 20


def present(ids):
    return ops.cast(ops.not_equal(ids, 0), "float32")[..., None]


def rows(ids, masked=False):
    return layers.Embedding(ROWS, 3, mask_zero=masked)(ids)


WAYS = {
    "masked mean": ("mean", "all", lambda ids: layers.GlobalAveragePooling1D()(rows(ids, True))),
    "mean": ("mean", "all", lambda ids: layers.GlobalAveragePooling1D()(rows(ids))),
    "maximum": ("max", "all", lambda ids: layers.GlobalMaxPooling1D()(rows(ids))),
    "root": (
        "sqrtn",
        "",
        lambda ids: (
            ops.sum(rows(ids) * present(ids), 1) / ops.sqrt(ops.maximum(ops.sum(present(ids), 1), 1.0))
        ),
    ),
    "bare root": (
        "sqrtn",
        "all",
        lambda ids: ops.sum(rows(ids) * present(ids), 1) / ops.sqrt(ops.sum(present(ids), 1)),
    ),
    "multi-hot": ("max", "", lambda ids: layers.CategoryEncoding(ROWS, output_mode="multi_hot")(ids)),
    "counts": ("sum", "", lambda ids: layers.CategoryEncoding(ROWS, output_mode="count")(ids)),
    "one-hot": ("sum", "", lambda ids: ops.sum(ops.one_hot(ids, ROWS), 1)),
}


def sequence_model(way, length=None):
    inputs = Inputs()
    ids, price = inputs("ids", "int64", (length,)), inputs("price", "float32")
    return Made(
        keras_model(inputs, {"s": head(ops.concatenate([way(ids), column(price)], -1), "h")}), ("ids",)
    )


@pytest.mark.parametrize("name", WAYS)
def test_ways_to_pool(parity, name):
    pool, needs, way = WAYS[name]
    compiled = parity(sequence_model(way))
    (step,) = [step for step in compiled.plan.steps if step.op == "embed"]
    assert (step.pool, step.present) == (pool, needs)


def test_fixed_lengths_are_never_empty(parity):
    compiled = parity(sequence_model(WAYS["mean"][2], 5))
    assert [step.present for step in compiled.plan.steps if step.op == "embed"] == [""]


@pytest.mark.parametrize("name", ["masked mean", "mean", "maximum", "bare root"])
def test_nothing_is_refused_where_the_original_gives_no_number(tmp_path, name):
    model = sequence_model(WAYS[name][2])
    model.export(tmp_path / "m")
    served = Served(compile_model(make_spec(tmp_path / "m", model.user), "cpu"), tmp_path)
    request = {"user": {"ids": [3, 4]}, "items": {"price": [1.0, 2.0]}}
    assert np.isfinite(served.scores([request])[0]["s"]).all()
    with pytest.raises(RequestError) as caught:
        served.scores([{**request, "user": {"ids": []}}])
    assert "'ids'" in str(caught.value)
    assert "no element that counts" in str(caught.value)


def weighted(score):
    return made(
        {"rows": variable(ROWS, 3)},
        lambda m, ids, weights, price, age: {
            "score": tf.reduce_sum(score(m, ids, weights), -1) + price * age
        },
        ("ids", "weights", "age"),
        ids=(I64, [None, None]),
        weights=(F, [None, None]),
        price=(F, [None]),
        age=(F, [None]),
    )


def test_weights_of_a_padded_sequence(parity):
    compiled = parity(
        weighted(lambda m, ids, weights: tf.reduce_sum(tf.gather(m.rows, ids) * weights[..., None], 1))
    )
    assert [step.weights for step in compiled.plan.steps if step.op == "embed"] == ["weights"]


def test_weights_that_a_mask_admits(parity):
    def score(m, ids, weights):
        admitted = weights * tf.cast(ids != 0, F)
        return tf.reduce_sum(tf.gather(m.rows, ids) * tf.expand_dims(admitted, -1), 1)

    compiled = parity(weighted(score))
    (step,) = [step for step in compiled.plan.steps if step.op == "embed"]
    assert (step.weights, step.mask.value) == ("weights", 0)


def test_one_hot_of_ids_outside_is_nothing(parity):
    model = made(
        {"kernel": variable(5, 1)},
        lambda m, code, price: {"score": tf.matmul(tf.one_hot(code, 5), m.kernel)[:, 0] + price},
        ("price",),
        code=(I64, [None]),
        price=(F, [None]),
    )
    codes = [-1, 0, 4, 5, 1 << 40]
    parity(model, [{"user": {"price": 0.5}, "items": {"code": codes}}])


def test_counts_in_integers_that_are_cast_later(parity):
    """As the lookup layers count; a word that is masked has an id beyond every row."""
    words = ["red", "green", "blue"]
    inputs = Inputs()
    tags, kind = inputs("tags", "string", (4,)), inputs("kind", "string", (1,))
    code, price = inputs("code", "int32", (1,)), inputs("price", "float32", (1,))
    parts = [
        layers.StringLookup(vocabulary=words, output_mode="multi_hot", mask_token="", oov_token="[UNK]")(
            tags
        ),
        layers.StringLookup(vocabulary=words, output_mode="count", num_oov_indices=2)(tags),
        layers.StringLookup(vocabulary=words, output_mode="one_hot")(kind),
        layers.CategoryEncoding(6, output_mode="one_hot")(code),
        price,
    ]
    model = Made(keras_model(inputs, {"s": head(layers.Concatenate()(parts), "h")}), ("tags", "price"))
    request = {
        "user": {"tags": ["red", "red", "", "?"], "price": 0.5},
        "items": {"kind": ["blue"], "code": [5]},
    }
    compiled = parity(model, [request])
    steps = [step for step in compiled.plan.steps if step.op == "embed"]
    assert [step.pool for step in steps] == ["max", "sum", "sum", "sum"]


@pytest.mark.parametrize("pooled_by", ["product", "softmax"])
def test_an_input_with_a_dimension_of_one_behind_its_sequence(parity, pooled_by):
    """A weight for each element, [rows, length, 1], as DeepCTR has them; its softmax is dense work."""
    inputs = Inputs()
    ids, weights = inputs("ids", "int64", (4,)), inputs("weights", "float32", (4, 1))
    price = inputs("price", "float32")
    shares = weights if pooled_by == "product" else ops.softmax(ops.where(present(ids) > 0, weights, -9.0), 1)
    pooled = ops.sum(rows(ids) * present(ids) * shares, axis=1)
    score = head(ops.concatenate([pooled, column(price)], -1), "h")
    request = {
        "user": {"ids": [1, 2, 0, 3], "weights": [0.5, 2.0, 7.0, -1.0]},
        "items": {"price": [1.0, 2.0]},
    }
    parity(Made(keras_model(inputs, {"s": score}), ("ids", "weights")), [request])


def test_one_hot_rows_leave_in_pieces():
    from bireme.compiler.rules.lower_pools import OneHotRows
    from bireme.compiler.tables.tables_export import row_chunks

    pieces = list(row_chunks(OneHotRows(7), size=3 * 7 * 4))
    assert [len(piece) for piece in pieces] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(pieces), np.eye(7, dtype=np.float32))


@pytest.mark.parametrize("trifle", [1e-8, 1e-7])
def test_pooling_as_deepctr_writes_it(parity, trifle):
    """The mask is tiled to every column; 1e-8 is too little to change a count, 1e-7 is not."""

    def score(m, ids, price):
        mask = tf.cast(tf.not_equal(ids, 0), F)
        tiled = tf.tile(tf.expand_dims(mask, 2), [1, 1, 3])
        total = tf.reduce_sum(tf.gather(m.table, ids) * tiled, 1)
        mean = total / (tf.reduce_sum(mask, 1, keepdims=True) + trifle)
        return {"score": tf.matmul(mean, m.kernel)[:, 0] + price}

    parts = {"table": variable(ROWS, 3), "kernel": variable(3, 1, seed=1)}
    model = made(parts, score, ("ids",), ids=(I64, [None, None]), price=(F, [None]))
    nothing = {"user": {"ids": [0, 0]}, "items": {"price": [1.0, 2.0]}}
    compiled = parity(model, [nothing, {**nothing, "user": {"ids": []}}])
    (step,) = [step for step in compiled.plan.steps if step.op == "embed"]
    counts = [step.floor for step in compiled.plan.steps if step.op == "counted"]
    if trifle == 1e-8:
        assert (step.pool, step.floor, counts) == ("mean", pytest.approx(1e-8), [])
    else:  # the network divides
        assert (step.pool, counts) == ("sum", [0.0])
