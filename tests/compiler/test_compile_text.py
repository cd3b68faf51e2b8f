"""Strings made from strings and numbers: lower, strip, join, substr, numbers as text and back, end to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from compiler_derived import check
from compiler_parts import Inputs, Made, head, keras_model, made, table, variable
from compiler_refusals import I32, I64, F, S
from keras import layers, ops
from test_compile_hashing import ids_model


def fast(text: Any) -> Any:
    return tf.strings.to_hash_bucket_fast(text, 9)


def words() -> dict[str, Any]:
    return {"words": table(["a", "b c", "ä"], [1, 2, 3], 0)}


MODELS: dict[str, Callable[[], Made]] = {
    "lower, looked up": ids_model(
        lambda m, word: m.words.lookup(tf.strings.lower(word)), 4, words(), word=(S, [None])
    ),
    "strip of upper, looked up": ids_model(
        lambda m, word: m.words.lookup(tf.strings.strip(tf.strings.upper(word))),
        4,
        {"words": table(["A", "B C"], [1, 2], 3)},
        word=(S, [None]),
    ),
    "lower and as it is": ids_model(
        lambda m, word: m.words.lookup(tf.strings.lower(word)) + m.words.lookup(word),
        7,
        words(),
        word=(S, [None]),
    ),
    "cross of user and item": ids_model(
        lambda _, city, word: fast(tf.strings.join([city, word], separator="_x_")),
        9,
        user=("city",),
        city=(S, [None]),
        word=(S, [None]),
    ),
    "cross of two of the user": ids_model(
        lambda _, city, word, other: fast(tf.strings.join([city, word])) * 0 + fast(other),
        9,
        user=("city", "word"),
        city=(S, [None]),
        word=(S, [None]),
        other=(S, [None]),
    ),
    "cross of words and an integer": ids_model(
        lambda _, city, code: fast("c" + city + "/" + tf.strings.as_string(code)),
        9,
        user=("code",),
        city=(S, [None]),
        code=(I64, [None]),
    ),
    "cross of vocabularies": ids_model(
        lambda m, a, b: m.words.lookup(tf.strings.join([a, b], " ")), 4, words(), a=(S, [None]), b=(S, [None])
    ),
    "part of a text": ids_model(
        lambda m, word: m.words.lookup(tf.strings.split(word, "|").to_tensor()[:, 0]),
        4,
        words(),
        word=(S, [None]),
    ),
    "second part, which a row must have": ids_model(
        lambda m, word: m.words.lookup(tf.strings.split(word, "|").to_tensor()[:, 1]),
        4,
        words(),
        word=(S, [None]),
    ),
    "third of three parts": ids_model(
        lambda m, word: m.words.lookup(
            tf.strings.split(word, "::").to_tensor(default_value="ä", shape=[None, 3])[:, 2]
        ),
        4,
        words(),
        word=(S, [None]),
    ),
    "letters and spaces only": ids_model(
        lambda m, word: m.words.lookup(tf.strings.regex_replace(tf.strings.lower(word), "[^a-z ]", "")),
        4,
        words(),
        word=(S, [None]),
    ),
    "all digits": ids_model(
        lambda _, word: tf.cast(tf.strings.regex_full_match(word, "[0-9a-f]+"), I32), 2, word=(S, [None])
    ),
    "nothing has a name": ids_model(
        lambda m, word: m.words.lookup(tf.where(word == "", "ä", tf.strings.lower(word))),
        4,
        words(),
        word=(S, [None]),
    ),
    "substr": ids_model(
        lambda m, word: m.words.lookup(tf.strings.substr(word, 0, 1)), 4, words(), word=(S, [None])
    ),
    "substr of characters": ids_model(
        lambda m, word: m.words.lookup(tf.strings.substr("<" + word, 1, 1, unit="UTF8_CHAR")),
        4,
        words(),
        word=(S, [None]),
    ),
    "length": ids_model(
        lambda _, word: tf.minimum(tf.strings.length(word, "UTF8_CHAR"), 8), 9, word=(S, [None])
    ),
    "text as an integer": ids_model(lambda _, word: tf.strings.to_number(word, I64) % 9, 9, word=(S, [None])),
    "truth as text": ids_model(lambda _, flag: fast(tf.strings.as_string(flag)), 9, flag=(tf.bool, [None])),
    "a float as text": ids_model(
        lambda _, size: fast(tf.strings.as_string(size, precision=2)), 9, size=(F, [None])
    ),
    "a narrowed integer as text": ids_model(
        lambda _, code: fast(tf.strings.as_string(tf.cast(code, I32))), 9, code=(I64, [None])
    ),
    "equal to a constant": ids_model(
        lambda _, word: tf.where(word == "x y", tf.constant(5, I32), tf.constant(2, I32)), 6, word=(S, [None])
    ),
    "equal to each other": ids_model(
        lambda _, a, b: tf.cast(tf.not_equal(a, tf.strings.lower(b)), I32),
        2,
        user=("a",),
        a=(S, [None]),
        b=(S, [None]),
    ),
}


def genres(pool: Callable[..., Any]) -> Callable[[], Made]:
    """A table read at the parts of a text, up to four of them."""

    def call(m: Any, age: Any, price: Any, genre: Any) -> Any:
        parts = tf.strings.split(genre, "|").to_tensor(default_value="", shape=[None, 4])
        return {"score": tf.reduce_sum(pool(m, parts), -1) + age * price}

    def make() -> Made:
        parts = {"rows": variable(5, 3), "words": table(["a", "b", ""], [1, 2, 4], 0)}
        inputs = {"age": (F, [None]), "price": (F, [None]), "genre": (S, [None])}
        return made(parts, call, ("age",), **inputs)

    return make


def embedded(m: Any, parts: Any) -> Any:
    return tf.gather(m.rows, m.words.lookup(tf.strings.lower(parts)))


def there(parts: Any) -> Any:
    return tf.cast(parts != "", F)[:, :, tf.newaxis]


MODELS |= {
    "sum over parts": genres(lambda m, parts: tf.reduce_sum(embedded(m, parts) * there(parts), 1)),
    "mean over parts": genres(
        lambda m, parts: tf.math.divide_no_nan(
            tf.reduce_sum(embedded(m, parts) * there(parts), 1), tf.reduce_sum(there(parts), 1)
        )
    ),
    "mean over all four parts": genres(lambda m, parts: tf.reduce_mean(embedded(m, parts), 1)),
}


@pytest.mark.parametrize("case", MODELS)
def test_model(export, tmp_path, case):
    check(export(MODELS[case]()), tmp_path)


def test_known_words_are_reached_through_the_text_ops(export, tmp_path):
    """Made-up requests must hold words that the vocabulary knows behind `lower` and `strip`."""
    from bireme.compiler.tables.export import read_words
    from bireme.synthetic import make_requests

    compiled = check(export(MODELS["strip of upper, looked up"]()), tmp_path)
    requests = make_requests(compiled.plan, read_words(compiled.split), [64])
    made = {word.upper().strip() for word in requests[0]["items"]["word"]}
    assert made >= {b"A", b"B C"}
    assert len(made) > 3


def test_history_with_a_mask_and_several_places_for_unknown_words(export, tmp_path):
    inputs = Inputs()
    seen, price = inputs("seen", "string", (None,)), inputs("price", "float32", (1,))
    ids = layers.StringLookup(vocabulary=["a", "b"], mask_token="", num_oov_indices=3)(seen)
    mask = ops.cast(ops.not_equal(ids, 0), "float32")[..., None]
    rows = layers.Embedding(6, 3)(ids)
    mean = ops.sum(rows * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)
    model = keras_model(inputs, {"score": head(ops.concatenate([mean, price], -1), "h")})
    check(export(Made(model, ("seen",))), tmp_path)
