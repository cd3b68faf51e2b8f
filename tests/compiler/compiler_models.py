"""The zoo: models for the compiler tests, one function each. Many outputs share one export and compilation.

A function returns what to export and the user side inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from compiler_parts import WORDS, Inputs, Made, column, head, keras_model, made, table, variable
from keras import layers, ops

MODELS: dict[str, Callable[[], Made]] = {}


def zoo(function: Callable[[], Made]) -> Callable[[], Made]:
    MODELS[function.__name__] = function
    return function


@zoo
def transforms() -> Made:
    inputs = Inputs()
    word, tag = inputs("word", "string"), inputs("tag", "string", (1,))
    code, key, flag = inputs("code", "int32"), inputs("key", "int64", (1,)), inputs("flag", "bool")
    price, ratio = inputs("price", "float32"), inputs("ratio", "float32", (1,))
    count, exact = inputs("count", "int32"), inputs("exact", "float64")
    out: dict[str, Any] = {}

    def embedded(name: str, ids: Any, rows: int) -> None:
        x = layers.Embedding(rows, 3, name=f"{name}_table")(ids)
        out[name] = head(x if len(x.shape) == 2 else layers.Flatten()(x), name)

    embedded("lookup", layers.StringLookup(vocabulary=WORDS)(word), 6)
    embedded("masked_lookup", layers.StringLookup(vocabulary=WORDS, mask_token="")(word), 7)
    embedded("lookup_column", layers.StringLookup(vocabulary=WORDS)(tag), 6)
    embedded("hashed", layers.Hashing(11)(word), 11)
    embedded("int_lookup", layers.IntegerLookup(vocabulary=[3, 7, 40])(code), 4)
    embedded("masked_int_lookup", layers.IntegerLookup(vocabulary=[3, 7, 40], mask_token=0)(code), 5)
    embedded("int_lookup_column", layers.IntegerLookup(vocabulary=[3, 7, 40])(key), 4)
    embedded("row_id", count, 60)
    embedded("bucketized", layers.Discretization([-1.0, 0.25, 2.5])(price), 4)
    embedded("bucketized_int", layers.Discretization([3, 10, 30])(count), 4)
    shared = layers.Embedding(7, 4, name="shared")
    lookup = layers.StringLookup(vocabulary=WORDS, mask_token="")
    pair = ops.concatenate([shared(lookup(word)), layers.Flatten()(shared(lookup(tag)))], -1)
    out["shared_table"] = head(pair, "shared_table")

    out["normalized"] = head(column(layers.Normalization(axis=None, mean=2.0, variance=9.0)(price)), "n0")
    out["normalized_column"] = head(layers.Normalization(axis=-1, mean=[0.5], variance=[2.0])(ratio), "n1")
    out["rescaled"] = head(layers.Rescaling(1 / 255.0, offset=-0.5)(ratio), "n2")
    out["log"] = head(column(ops.log1p(price)), "n3")
    out["chain"] = head(column(ops.tanh(1.5 - ops.sqrt(ops.maximum(price, 0.1)) / 3)), "n4")
    out["from_int"] = head(column(ops.cast(count, "float32") / 10), "n5")
    out["from_bool"] = head(column(ops.cast(flag, "float32")), "n6")
    out["from_double"] = head(column(ops.cast(exact, "float32")), "n7")
    return Made(keras_model(inputs, out), ("word", "key", "ratio", "flag"))


@zoo
def sequences() -> Made:
    inputs = Inputs()
    words, ids = inputs("words", "string", (None,)), inputs("ids", "int64", (None,))
    five, four = inputs("five", "string", (5,)), inputs("four", "int32", (4,))
    price = inputs("price", "float32")
    lookup = layers.StringLookup(vocabulary=WORDS, mask_token="", name="words_lookup")
    table = layers.Embedding(7, 3, name="words_table")
    plain = layers.StringLookup(vocabulary=WORDS, name="plain_lookup")
    rows = layers.Embedding(50, 2, name="ids_table")
    out: dict[str, Any] = {}

    def mask(values: Any, nothing: Any) -> Any:
        return ops.cast(ops.not_equal(values, nothing), "float32")[..., None]

    def emit(name: str, x: Any) -> None:
        out[name] = head(ops.concatenate([x, column(price)], -1), name)

    def mean(x: Any, m: Any) -> Any:
        return ops.sum(x * m, axis=1) / ops.maximum(ops.sum(m, axis=1), 1.0)

    looked = lookup(words)
    emit("mean_by_id", mean(table(looked), mask(looked, 0)))
    emit("sum_by_id", ops.sum(table(looked) * mask(looked, 0), axis=1))
    emit("mean_by_text", mean(table(lookup(words)), mask(words, "")))
    emit("sum_by_text", ops.sum(mask(words, "") * table(plain(words)), axis=1))
    emit("sum_of_all", ops.sum(table(plain(words)), axis=1))
    emit(
        "mean_small_floor", ops.sum(rows(ids) * mask(ids, 0), 1) / ops.maximum(ops.sum(mask(ids, 0), 1), 1e-9)
    )
    emit(
        "mean_kept_dims",
        layers.Flatten()(
            ops.sum(rows(ids) * mask(ids, 0), 1, keepdims=True)
            / ops.maximum(ops.sum(mask(ids, 0), 1, keepdims=True), 1.0)
        ),
    )
    emit("fixed_mean_by_id", mean(table(lookup(five)), mask(lookup(five), 0)))
    emit("fixed_sum", ops.sum(rows(four), axis=1))
    emit("fixed_mean", ops.mean(rows(four), axis=1))
    emit("keras_pooling", layers.GlobalAveragePooling1D()(table(plain(five))))
    return Made(keras_model(inputs, out), ("words", "ids", "four"))


@zoo
def architectures() -> Made:
    inputs = Inputs()
    user, age = inputs("user", "string"), inputs("age", "float32", (1,))
    item, shop = inputs("item", "string", (1,)), inputs("shop", "string")
    price = inputs("price", "float32", (1,))
    label = inputs("label", "float32")

    def field_of(name: str, x: Any, width: int = 4) -> Any:
        flat = layers.Embedding(16, width, name=f"{name}_{width}")(layers.Hashing(16)(x))
        return layers.Flatten()(flat) if len(flat.shape) == 3 else flat

    u, i, s = field_of("user", user), field_of("item", item), field_of("shop", shop)
    every = layers.Concatenate()([i, u, price, s, age])  # items and user interleaved
    out: dict[str, Any] = {}

    x = layers.Dense(12, name="before_1")(every)
    x = layers.BatchNormalization(name="bn_before")(x)
    x = layers.ReLU()(x)
    x = layers.Dropout(0.3)(x)
    out["bn_before_activation"] = head(x, "h0")

    x = layers.Dense(12, activation="relu", name="after_1")(every)
    x = layers.BatchNormalization(name="bn_after")(x)
    out["bn_after_activation"] = head(layers.Dense(6, activation="relu", name="after_2")(x), "h1")

    x = layers.Dense(7, name="between_1")(every)
    x = layers.BatchNormalization(name="bn_between")(x)
    out["bn_between_dense"] = head(layers.Dense(5, name="between_2")(x), "h2")

    x = layers.BatchNormalization(name="bn_concat")(every)
    out["bn_after_concat"] = head(layers.Dense(9, activation="relu", name="concat_1")(x), "h3")

    x = layers.Dense(6, use_bias=False, name="bare_1")(every)
    x = layers.BatchNormalization(scale=False, center=False, name="bn_bare")(x)
    out["bn_bare"] = head(layers.PReLU()(x), "h4")

    wide = sum(field_of(n, t, 1) for n, t in (("user", user), ("item", item), ("shop", shop)))
    deep = layers.Dense(1, name="deep_out")(layers.Dense(8, activation="relu", name="deep_1")(every))
    out["wide_and_deep"] = layers.Activation("sigmoid")(wide + deep)  # stays [rows, 1]

    stacked = ops.stack([u, i, s], axis=1)
    fm = 0.5 * ops.sum(ops.square(ops.sum(stacked, 1)) - ops.sum(ops.square(stacked), 1), axis=-1)
    out["fm"] = ops.sigmoid(fm)
    reshaped = layers.Reshape((3, 4))(layers.Concatenate()([s, u, i]))
    pairs = ops.matmul(reshaped, ops.transpose(reshaped, (0, 2, 1)))
    out["pairwise"] = head(layers.Flatten()(pairs), "h5")

    crossed = every
    for k in range(2):
        crossed = every * layers.Dense(every.shape[-1], name=f"cross_{k}")(crossed) + crossed
    out["dcn_v2"] = head(crossed, "h6")
    crossed = every
    for k in range(2):
        crossed = every * layers.Dense(1, use_bias=False, name=f"cross1_{k}")(crossed) + crossed
    out["dcn_v1"] = head(crossed, "h7")

    experts = ops.stack([layers.Dense(4, activation="relu", name=f"e{k}")(every) for k in range(3)], axis=1)
    for task in ("ctr", "cvr"):
        gate = layers.Dense(3, activation="softmax", name=f"{task}_gate")(every)
        out[f"mmoe_{task}"] = head(ops.sum(gate[..., None] * experts, axis=1), f"{task}_head")

    out["two_tower"] = ops.sum(
        layers.Dense(5, name="tu")(ops.concatenate([u, age], -1))
        * layers.Dense(5, name="ti")(ops.concatenate([i, price], -1)),
        axis=-1,
    )
    out["user_only"] = head(layers.Dense(4, activation="tanh", name="uo")(u), "h8")
    out["item_only"] = head(layers.Dense(4, activation="gelu", name="io")(i), "h9")
    num = ops.multiply(price, ops.convert_to_tensor(np.linspace(-1, 1, 6, dtype=np.float32)))
    out["number_times_vector"] = head(layers.Dense(3, activation="relu", name="nv")(num), "h10")
    out["layer_norm"] = head(layers.LayerNormalization()(layers.Dense(6, name="ln")(every)), "h11")
    out["loss"] = ops.square(label - out["fm"])
    served = {name: name for name in out if name != "loss"}
    return Made(keras_model(inputs, out), ("user", "age"), spec={"outputs": served})


@zoo
def plain_tensorflow() -> Made:
    """No Keras: hash tables, embedding_lookup, divide_no_nan, a table of one number an id, unused inputs."""
    parts = {
        "words": table(["a", "b", "", "c"], [1, 2, 3, 4], 0),
        "codes": table([10, -20, 30], [2, 1, 0], 3),
        "left": variable(5, 3, seed=1, name="word"),  # named like a feature
        "right": variable(4, 3, seed=2),  # same default name
        "linear": variable(5, seed=3),
        "kernel": variable(9, 1, seed=4),
        "bias": variable(1, seed=5),
    }

    def call(m: Any, word: Any, code: Any, clicks: Any, price: Any, unused: Any, label: Any) -> Any:
        ids = m.words.lookup(word)
        seen = m.words.lookup(clicks)
        mask = tf.cast(seen > 0, tf.float32)[:, :, tf.newaxis]
        mean = tf.math.divide_no_nan(
            tf.reduce_sum(tf.nn.embedding_lookup(m.left, seen) * mask, 1), tf.reduce_sum(mask, 1)
        )
        blocks = [
            tf.nn.embedding_lookup(m.left, ids),
            tf.gather(m.right, m.codes.lookup(tf.cast(code, tf.int64))),
            mean,
        ]
        x = tf.matmul(tf.concat(blocks, 1), m.kernel) + m.bias
        logit = x[:, 0] + tf.gather(m.linear, ids) + tf.clip_by_value(price, 0.5, 2.0)
        return {
            "score": tf.sigmoid(logit),
            "column": x,
            "bounded": tf.nn.relu6(10.0 * logit),
            "price_itself": price,
            "loss": tf.reduce_mean((label - logit) ** 2) + tf.zeros_like(logit),
        }

    inputs = {
        "word": (tf.string, [None]),
        "code": (tf.int32, [None]),
        "clicks": (tf.string, [None, None]),
        "price": (tf.float32, [None]),
        "unused": (tf.float32, None),
        "label": (tf.float32, [None]),
    }
    served = {name: name for name in ("score", "column", "bounded", "price_itself")}
    return made(parts, call, ("clicks", "word"), {"outputs": served}, **inputs)


@zoo
def item_sequences() -> Made:
    """Sequences of any length per candidate, beside one per user; rows at constant ids; one table for all."""
    parts = {
        "words": table(["a", "b", "c"], [1, 2, 3], 0),
        "rows": variable(4, 3, seed=1),
        "positions": variable(5, 3, seed=2),
    }

    def call(m: Any, tags: Any, clicks: Any, codes: Any) -> Any:
        def pooled(words: Any) -> Any:
            ids = m.words.lookup(words)
            mask = tf.cast(ids != 0, tf.float32)[..., tf.newaxis]
            return tf.reduce_sum(tf.gather(m.rows, ids) * mask, 1) / tf.maximum(1.0, tf.reduce_sum(mask, 1))

        first = tf.nn.embedding_lookup(m.rows, [0, 3])
        place = tf.reduce_sum(tf.nn.embedding_lookup(m.positions, tf.range(2)) * first, 0)
        item = pooled(tags) + place + tf.reduce_sum(tf.gather(m.rows, codes), axis=-2)
        return {"score": tf.reduce_sum(pooled(clicks) * item, -1)}

    shape = [None, None]
    inputs = {"tags": (tf.string, shape), "clicks": (tf.string, shape), "codes": (tf.int32, shape)}
    return made(parts, call, ("clicks",), **inputs)


@zoo
def every_word_known() -> Made:
    """`num_oov_indices=0`: the original refuses unknown words."""
    inputs = Inputs()
    word, code = inputs("word", "string"), inputs("code", "int64")
    x = layers.Embedding(5, 3)(layers.StringLookup(vocabulary=WORDS, num_oov_indices=0)(word))
    y = layers.Embedding(2, 3)(layers.IntegerLookup(vocabulary=[5, 9], num_oov_indices=0)(code))
    return Made(keras_model(inputs, {"score": head(ops.concatenate([x, y], -1), "h")}), ("word",))


@zoo
def clashing_names() -> Made:
    """Features and tasks named like things inside the compiler and between the served steps."""
    names = ("user", "items", "n", "scores", "x.y", "a-b", "cut_0", "cut_1", "w.vocabulary", "Upper", "9th")
    inputs = Inputs()
    columns = [column(inputs(name, "float32")) for name in names]
    words = inputs("w", "string")
    columns.append(layers.Embedding(6, 2, name="w_table")(layers.StringLookup(vocabulary=WORDS)(words)))
    x = layers.Dense(4, activation="relu")(layers.Concatenate()(columns))
    tasks = ("n", "score", "v0", "v3", "c0", "w0", "t1", "cut_2", "cut_0", "out put")
    out = {f"o{k}": head(x, f"h{k}") for k in range(len(tasks))}
    served = {task: f"o{k}" for k, task in enumerate(tasks)}
    return Made(keras_model(inputs, out), ("user", "cut_1", "x.y"), spec={"outputs": served})
