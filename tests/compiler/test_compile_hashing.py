"""Hashes, vocabularies with several places for unknown keys, crosses and integer arithmetic, end to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from compiler_derived import check
from compiler_parts import WORDS, Inputs, Made, head, keras_model, made, table, variable
from compiler_refusals import I32, I64, F, S
from keras import layers, ops


def keras_layer(
    layer: Callable[[], Any], rows: int, *kinds: str, user: tuple[str, ...] = ()
) -> Callable[[], Made]:
    """A model whose ids come from one preprocessing layer over as many features."""

    def make() -> Made:
        inputs = Inputs()
        features = [inputs(f"x{i}", kind) for i, kind in enumerate(kinds)]
        price, age = inputs("price", "float32", (1,)), inputs("age", "float32", (1,))
        ids = layer()(features[0] if len(features) == 1 else features)
        embedded = layers.Embedding(rows, 3)(ids)
        score = head(ops.concatenate([embedded, price, age], -1), "h")
        return Made(keras_model(inputs, {"score": score}), ("age", *user))

    return make


def ids_model(
    make_ids: Callable[..., Any],
    rows: int,
    parts: dict[str, Any] | None = None,
    user: tuple[str, ...] = (),
    **inputs: Any,
) -> Callable[[], Made]:
    """A tf.Module that reads a table at ids."""

    def make() -> Made:
        def call(m: Any, age: Any, price: Any, **rest: Any) -> Any:
            rows = tf.nn.embedding_lookup(m.rows, make_ids(m, **rest))
            return {"score": tf.reduce_sum(rows, -1) + price * age}

        given = {"rows": variable(rows, 3), **(parts or {})}
        return made(given, call, ("age", *user), age=(F, [None]), price=(F, [None]), **inputs)

    return make


def vocabulary_table(keys: Any, unknown: int) -> Any:
    kind = tf.string if isinstance(keys[0], str) else tf.int64
    ids = tf.range(len(keys), dtype=tf.int64)
    source = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, kind), ids)
    return tf.lookup.StaticVocabularyTable(source, unknown, lookup_key_dtype=kind)


def filled(kind: str) -> Any:
    more = {"empty_key": "<e>", "deleted_key": "<d>"} if kind == "DenseHashTable" else {}
    made = getattr(tf.lookup.experimental, kind)(S, I64, default_value=4, **more)
    made.insert(tf.constant(["a", "b", "ä"]), tf.constant([1, 2, 3], I64))
    return made


KERAS: dict[str, Callable[[], Made]] = {
    "hashed integers": keras_layer(lambda: layers.Hashing(11), 11, "int64"),
    "hashed short integers": keras_layer(lambda: layers.Hashing(11), 11, "int32"),
    "hashed floats": keras_layer(lambda: layers.Hashing(11), 11, "float32"),
    "hashed, one word masked": keras_layer(lambda: layers.Hashing(11, mask_value=""), 11, "string"),
    "hashed integers, 0 masked": keras_layer(lambda: layers.Hashing(11, mask_value=0), 11, "int64"),
    "salted": keras_layer(lambda: layers.Hashing(11, salt=[137, 9]), 11, "string"),
    "salted integers, masked": keras_layer(lambda: layers.Hashing(11, salt=5, mask_value=3), 11, "int64"),
    "strings, no unknown": keras_layer(
        lambda: layers.StringLookup(vocabulary=WORDS, num_oov_indices=0), 5, "string"
    ),
    "strings, three unknown": keras_layer(
        lambda: layers.StringLookup(vocabulary=WORDS, num_oov_indices=3), 8, "string"
    ),
    "strings, masked, three unknown": keras_layer(
        lambda: layers.StringLookup(vocabulary=WORDS, num_oov_indices=3, mask_token=""), 9, "string"
    ),
    "integers, no unknown": keras_layer(
        lambda: layers.IntegerLookup(vocabulary=[3, 7, 40], num_oov_indices=0), 3, "int32"
    ),
    "integers, four unknown": keras_layer(
        lambda: layers.IntegerLookup(vocabulary=[3, 7, 40], num_oov_indices=4), 7, "int64"
    ),
    "integers, masked, four unknown": keras_layer(
        lambda: layers.IntegerLookup(vocabulary=[3, 7, 40], num_oov_indices=4, mask_token=0), 8, "int32"
    ),
    "crossed, user with item": keras_layer(
        lambda: layers.HashedCrossing(13), 13, "string", "string", user=("x0",)
    ),
    "crossed": keras_layer(lambda: layers.HashedCrossing(13), 13, "string", "int64"),
}
PLAIN: dict[str, Callable[[], Made]] = {
    "strong": ids_model(
        lambda _, word: tf.strings.to_hash_bucket_strong(word, 9, key=[1, -2]), 9, word=(S, [None])
    ),
    "legacy": ids_model(
        lambda _, word: tf.raw_ops.StringToHashBucket(string_tensor=word, num_buckets=9), 9, word=(S, [None])
    ),
    "vocabulary table": ids_model(
        lambda m, word: m.words.lookup(word),
        7,
        {"words": vocabulary_table(["a", "b", "ä"], 4)},
        word=(S, [None]),
    ),
    "vocabulary table of integers": ids_model(
        lambda m, code: m.codes.lookup(code),
        7,
        {"codes": vocabulary_table([5, -6, 7], 4)},
        code=(I64, [None]),
    ),
    "unknown words hashed by hand": ids_model(
        lambda m, word: tf.where(
            tf.equal(m.words.lookup(word), -1),
            tf.strings.to_hash_bucket_fast(word, 2) + 7,
            m.words.lookup(word),
        ),
        9,
        {"words": table(["a", "b"], [0, 1], -1)},
        word=(S, [None]),
    ),
    "floor modulo": ids_model(lambda _, code: tf.math.floormod(code, 9), 9, code=(I64, [None])),
    "modulo of a narrowed integer": ids_model(
        lambda _, code: tf.math.floormod(tf.cast(code, I32), 9), 9, code=(I64, [None])
    ),
    "arithmetic cross": ids_model(
        lambda _, a, b: tf.clip_by_value(a * 7 + b, 0, 48), 49, a=(I64, [None]), b=(I64, [None])
    ),
    "too large is unknown": ids_model(
        lambda _, code: tf.where(tf.logical_or(code >= 8, code < 0), tf.constant(8, I32), code),
        9,
        code=(I32, [None]),
    ),
    "searched edges": ids_model(
        lambda _, size: tf.searchsorted([0.0, 0.5, 0.5, 2.0], size, side="right"), 5, size=(F, [None])
    ),
    "searched edges, from the left": ids_model(
        lambda _, size: tf.searchsorted([-1.1754944e-38, 0.0, 0.5, 2.0], size), 5, size=(F, [None])
    ),
    "integers to integers to integers": ids_model(
        lambda m, code: m.second.lookup(m.first.lookup(code)),
        5,
        {"first": table([1, 2, 3], [30, 20, 10], 0), "second": table([10, 20], [4, 3], 1)},
        code=(I64, [None]),
    ),
    "a table that was filled in training": ids_model(
        lambda m, word: m.words.lookup(word), 5, {"words": filled("MutableHashTable")}, word=(S, [None])
    ),
    "a dense table that was filled in training": ids_model(
        lambda m, word: m.words.lookup(word), 5, {"words": filled("DenseHashTable")}, word=(S, [None])
    ),
    "words of words": ids_model(
        lambda m, word: m.groups.lookup(m.brands.lookup(word)),
        4,
        {
            "brands": tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["audi", "vw", "bmw"], ["wob", "wob", "muc"]), "none"
            ),
            "groups": table(["wob", "muc", "none"], [1, 2, 3], 0),
        },
        word=(S, [None]),
    ),
    "words of integers": ids_model(
        lambda m, code: tf.strings.to_hash_bucket_fast(m.names.lookup(code), 9),
        9,
        {
            "names": tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant([1, 2], I64), tf.constant([b"\xff one", b""])
                ),
                "",
            )
        },
        code=(I64, [None]),
    ),
}


@pytest.mark.parametrize("case", KERAS)
def test_keras_layer(export, tmp_path, case):
    check(export(KERAS[case]()), tmp_path)


@pytest.mark.parametrize("case", PLAIN)
def test_tensorflow_op(export, tmp_path, case):
    check(export(PLAIN[case]()), tmp_path)
