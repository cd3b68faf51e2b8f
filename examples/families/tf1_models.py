"""TensorFlow 1 style: a session's graph saved with the v1 builder, feature columns, partitioned variables."""

from __future__ import annotations

import os

# Keras 3 has no feature columns; TensorFlow's own v1 functions build on Keras 2.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from subject_parts import Draw, Made, ids, numbers, randomise, words

__all__ = ["MODELS"]

_DIM = 8
_COLOURS = ["red", "green", "blue", "grün"]
_CITIES = ["Oslo", "Köln", "Lima", "Pune", "Москва"]
v1 = tf.compat.v1


def _session_model(
    network: Callable[[dict[str, Any]], dict[str, Any]],
    inputs: dict[str, tuple[Any, list[int | None]]],
    draws: dict[str, Draw],
    user: tuple[str, ...],
    tells: str,
) -> Made:
    """Build a graph, initialise it, save it with its tables and assets as TF1 code does."""

    def save(folder: str) -> None:
        with tf.Graph().as_default(), v1.Session() as session:
            placeholders = {n: v1.placeholder(dtype, shape, n) for n, (dtype, shape) in inputs.items()}
            outputs = network(placeholders)
            v1.set_random_seed(3)
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            for number, variable in enumerate(v1.global_variables()):
                values = session.run(v1.random_normal(variable.shape, stddev=0.3, seed=number))
                variable.load(values, session)
            builder = v1.saved_model.Builder(folder)
            signature = v1.saved_model.predict_signature_def(placeholders, outputs)
            builder.add_meta_graph_and_variables(
                session,
                [v1.saved_model.tag_constants.SERVING],
                {"serving_default": signature},
                assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
                main_op=v1.tables_initializer(),
            )
            builder.save()

    return Made(save, user, draws, tells=tells)


def _dense(x: Any, units: int, name: str, activation: Any = None) -> Any:
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [x.shape[-1], units])
        x = tf.matmul(x, kernel) + v1.get_variable("bias", [units])
    return activation(x) if activation else x


def _score(x: Any) -> Any:
    return tf.sigmoid(_dense(_dense(x, 16, "hidden", tf.nn.relu), 1, "logit"))[:, 0]


def _tables() -> Made:
    """Lookup tables, one from an asset file; a partitioned table in both layouts; a sparse pooled bag."""
    folder = Path(tempfile.mkdtemp())
    (folder / "cities.txt").write_text("\n".join(_CITIES) + "\n", encoding="utf-8")

    def network(x: dict[str, Any]) -> dict[str, Any]:
        vocabulary = v1.lookup.StaticVocabularyTable(
            v1.lookup.TextFileInitializer(
                str(folder / "cities.txt"),
                tf.string,
                v1.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                v1.lookup.TextFileIndex.LINE_NUMBER,
            ),
            num_oov_buckets=2,
        )
        parts = v1.fixed_size_partitioner(3)
        cities = v1.get_variable("city_table", [7, _DIM], partitioner=parts)
        items = v1.get_variable("item_table", [50, _DIM], partitioner=parts)
        bags = v1.get_variable("bag_table", [30, _DIM])
        city = v1.nn.embedding_lookup(cities, vocabulary.lookup(x["city"]), partition_strategy="div")
        item = v1.nn.embedding_lookup(items, x["item"], partition_strategy="mod")
        bag = v1.nn.safe_embedding_lookup_sparse(
            [bags], tf.sparse.from_dense(x["bag"]), combiner="mean", partition_strategy="div"
        )
        normal = (x["price"] - 2.0) / 3.0
        return {"score": _score(tf.concat([city, item, bag, normal], axis=1))}

    inputs = {
        "city": (tf.string, [None]),
        "item": (tf.int64, [None]),
        "bag": (tf.int64, [None, 4]),
        "price": (tf.float32, [None, 1]),
    }
    draws = {
        "city": words(_CITIES),
        "item": ids(0, 50),
        "bag": ids(1, 30, 4, pad=0),
        "price": numbers(),
    }
    return _session_model(
        network, inputs, draws, ("city", "bag"), "TF1 SavedModel: asset file, partitioned variables"
    )


def _columns(fc: Any) -> tuple[list[Any], list[Any]]:
    """Wide and deep feature columns of every kind."""
    colour = fc.categorical_column_with_vocabulary_list("colour", _COLOURS, num_oov_buckets=1)
    city = fc.categorical_column_with_vocabulary_list("city", _CITIES, default_value=0)
    user = fc.categorical_column_with_hash_bucket("user", 60)
    item = fc.categorical_column_with_identity("item", 50, default_value=0)
    age = fc.bucketized_column(fc.numeric_column("age"), [18, 25, 35, 50, 65])
    price = fc.numeric_column("price", normalizer_fn=lambda x: (x - 2.0) / 3.0)
    cross = fc.crossed_column(["city", "colour"], 40)
    deep = [
        fc.embedding_column(user, _DIM),
        fc.embedding_column(item, _DIM),
        fc.embedding_column(cross, 4),
        fc.embedding_column(city, 4, combiner="sqrtn"),
        fc.indicator_column(colour),
        fc.indicator_column(age),
        age,
        price,
    ]
    return [colour, cross, price], deep


_COLUMN_INPUTS = {
    "colour": (tf.string, [None, 1]),
    "city": (tf.string, [None, 1]),
    "user": (tf.string, [None, 1]),
    "item": (tf.int64, [None, 1]),
    "age": (tf.float32, [None, 1]),
    "price": (tf.float32, [None, 1]),
}
_COLUMN_DRAWS = {
    "colour": words(_COLOURS),
    "city": words(_CITIES),
    "user": words([f"u{i}" for i in range(99)]),
    "item": ids(0, 50),
    "age": numbers(0, 90),
    "price": numbers(),
}


def _feature_columns_v1() -> Made:
    """input_layer and linear_model, as the estimators of TF1 used them."""

    def network(x: dict[str, Any]) -> dict[str, Any]:
        fc = v1.feature_column
        wide, deep = _columns(fc)
        logit = _dense(_dense(fc.input_layer(x, deep), 16, "hidden", tf.nn.relu), 1, "logit")
        return {"score": tf.sigmoid(logit + fc.linear_model(x, wide))[:, 0]}

    return _session_model(
        network, _COLUMN_INPUTS, _COLUMN_DRAWS, ("user", "city", "age"), "input_layer and linear_model"
    )


def _dense_features() -> Made:
    """Keras 2's DenseFeatures over feature columns."""
    from tf_keras import Input, Model, layers

    inputs = {n: Input(tuple(shape[1:]), dtype=dtype, name=n) for n, (dtype, shape) in _COLUMN_INPUTS.items()}
    x = layers.DenseFeatures(_columns(tf.feature_column)[1])(inputs)
    x = layers.Dense(16, activation="relu")(x)
    model = Model(inputs, {"score": layers.Dense(1, activation="sigmoid")(x)})
    randomise(model.variables)
    return Made(
        lambda folder: tf.saved_model.save(model, folder),
        ("user", "city", "age"),
        _COLUMN_DRAWS,
        tells="feature columns in Keras 2",
    )


MODELS: dict[str, Callable[[], Made]] = {
    "tf1_tables": _tables,
    "tf1_feature_columns": _feature_columns_v1,
    "keras2_DenseFeatures": _dense_features,
}
