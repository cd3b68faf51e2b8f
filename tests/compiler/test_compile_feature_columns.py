"""Graphs as `tf.feature_column` makes them, exported the way TensorFlow 1 does."""

from __future__ import annotations

import pytest
import tensorflow as tf
from compiler_tf1 import Tf1, inputs, v1, weights

fc = v1.feature_column
S, F, I64 = tf.string, tf.float32, tf.int64
ONE, MANY, WEIGHTS = {"tag": (S, [None])}, {"tag": (S, [None, None])}, {"w": (F, [None, None])}
CODE = {"tag": (I64, [None])}


def hashed(**more):
    return fc.categorical_column_with_hash_bucket("tag", 10, **more)


def words(**more):
    return fc.categorical_column_with_vocabulary_list("tag", ["a", "b", "c"], **more)


def buckets():
    return fc.bucketized_column(fc.numeric_column("price"), [0.0, 1.0, 2.0])


COLUMNS = {
    "hashed": (lambda: [fc.embedding_column(hashed(), 4)], ONE),
    "hashed sequence": (lambda: [fc.embedding_column(hashed(), 4, combiner="sqrtn")], MANY),
    "hashed integer": (lambda: [fc.embedding_column(hashed(dtype=tf.int64), 4)], CODE),
    "vocabulary": (lambda: [fc.embedding_column(words(), 4)], MANY),
    "vocabulary with places for others": (
        lambda: [fc.embedding_column(words(num_oov_buckets=2), 4, combiner="sum")],
        MANY,
    ),
    "indicator": (lambda: [fc.indicator_column(words())], ONE),
    "indicator of a sequence": (lambda: [fc.indicator_column(words())], MANY),
    "identity": (
        lambda: [fc.embedding_column(fc.categorical_column_with_identity("tag", 9), 3)],
        CODE,
    ),
    "identity with a default": (
        lambda: [fc.embedding_column(fc.categorical_column_with_identity("tag", 9, default_value=0), 3)],
        CODE,
    ),
    "bucketized": (lambda: [buckets()], {}),
    "bucketized embedding": (lambda: [fc.embedding_column(buckets(), 3)], {}),
    "bucketized indicator": (lambda: [fc.indicator_column(buckets())], {}),
    "crossed": (lambda: [fc.embedding_column(fc.crossed_column([buckets(), "tag"], 50), 3)], ONE),
    "crossed strings": (
        lambda: [fc.indicator_column(fc.crossed_column(["tag", "other"], 50))],
        {**ONE, "other": (S, [None])},
    ),
    "shared": (
        lambda: fc.shared_embedding_columns(
            [hashed(), fc.categorical_column_with_hash_bucket("other", 10)], 4
        ),
        {**ONE, "other": (S, [None])},
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(parity, name):
    make, more = COLUMNS[name]

    def build():
        given = inputs(age=(F, [None]), price=(F, [None]), **more)
        features = {key: x if x.shape.rank == 2 else tf.expand_dims(x, 1) for key, x in given.items()}
        normal = fc.numeric_column("price", normalizer_fn=lambda x: (x - 1.0) / 2.0)
        x = fc.input_layer(features, [*make(), fc.numeric_column("age"), normal])
        return given, {"score": tf.matmul(x, weights("kernel", int(x.shape[1]), 1))[:, 0]}

    compiled = parity(Tf1(build, ("age",)))
    embeds = [step for step in compiled.plan.steps if step.op == "embed"]
    assert len(embeds) == (2 if name == "shared" else 1)


def test_ids_outside_get_the_default_and_absent_ones_nothing(parity):
    make, more = COLUMNS["identity with a default"]

    def build():
        given = inputs(age=(F, [None]), **more)
        features = {key: tf.expand_dims(x, 1) for key, x in given.items()}
        x = fc.input_layer(features, [*make(), fc.numeric_column("age")])
        return given, {"score": tf.matmul(x, weights("kernel", int(x.shape[1]), 1))[:, 0]}

    codes = [-5, -1, 0, 8, 9, 1 << 40]
    parity(Tf1(build, ("age",)), [{"user": {"age": 0.5}, "items": {"tag": codes}}])
