"""Models made of TensorFlow Recommenders' layers (written by others), on Keras 2."""

from __future__ import annotations

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_recommenders as tfrs
from subject_parts import Draw, Made, ids, numbers, randomise, words
from tf_keras import Input, Model, Sequential, layers

__all__ = ["MODELS"]

_DIM = 8
_USERS = [f"user {i}" for i in range(80)]
_FILMS = [f"film {i}" for i in range(60)] + ["Amélie", "千と千尋の神隠し"]


def _tower(known: list[str]) -> Any:
    """Vocabulary and embedding, as in the TensorFlow Recommenders tutorials."""
    return Sequential(
        [layers.StringLookup(vocabulary=known, mask_token=None), layers.Embedding(len(known) + 1, _DIM)]
    )


class _Inputs:
    """Inputs of the film models, encoded."""

    def __init__(self) -> None:
        text, one = tf.string, ()
        self.raw = {
            "user_id": Input(one, dtype=text, name="user_id"),
            "stamp": Input(one, dtype=tf.float32, name="stamp"),
            "film": Input(one, dtype=text, name="film"),
            "year": Input(one, dtype=tf.int64, name="year"),
        }
        self.draws: dict[str, Draw] = {
            "user_id": words(_USERS),
            "stamp": numbers(0, 100),
            "film": words(_FILMS),
            "year": ids(1950, 2026),
        }
        self.user = ("user_id", "stamp")
        stamp = layers.Discretization([10.0, 30.0, 60.0])(self.raw["stamp"])
        decade = layers.IntegerLookup(vocabulary=list(range(1960, 2026, 5)))(self.raw["year"])
        self.users = [_tower(_USERS)(self.raw["user_id"]), layers.Embedding(4, _DIM)(stamp)]
        self.items = [_tower(_FILMS)(self.raw["film"]), layers.Embedding(15, _DIM)(decade)]

    def made(self, output: Any, tells: str) -> Made:
        model = Model(self.raw, {"score": output})
        randomise(model.variables)
        return Made(lambda folder: tf.saved_model.save(model, folder), self.user, self.draws, tells=tells)


def _cross(**options: Any) -> Callable[[], Made]:
    def make() -> Made:
        x = _Inputs()
        x0 = layers.Concatenate()([*x.users, *x.items])
        crossed = tfrs.layers.dcn.Cross(**options)(x0)
        crossed = tfrs.layers.dcn.Cross(**options)(x0, crossed)
        deep = layers.Dense(16, activation="relu")(crossed)
        return x.made(layers.Dense(1, activation="sigmoid")(deep), "layers.dcn.Cross")

    return make


def _multi_layer_dcn() -> Made:
    x = _Inputs()
    x0 = layers.Concatenate()([*x.users, *x.items])
    crossed = tfrs.layers.feature_interaction.MultiLayerDCN(projection_dim=4, num_layers=3)(x0)
    return x.made(layers.Dense(1, activation="sigmoid")(crossed), "layers.feature_interaction.MultiLayerDCN")


def _dot() -> Made:
    x = _Inputs()
    pairs = tfrs.layers.feature_interaction.DotInteraction()([*x.users, *x.items])
    deep = tfrs.layers.blocks.MLP([16, 8], final_activation="relu")(layers.Concatenate()([pairs, *x.items]))
    return x.made(layers.Dense(1, activation="sigmoid")(deep), "layers.feature_interaction.DotInteraction")


def _two_tower() -> Made:
    x = _Inputs()
    towers = [
        tfrs.layers.blocks.MLP([16, 8], activation="relu", final_activation=None)(layers.Concatenate()(side))
        for side in (x.users, x.items)
    ]
    user, item = (tf.math.l2_normalize(tower, axis=-1) for tower in towers)
    return x.made(tf.reduce_sum(user * item, axis=-1), "two towers, cosine")


class _Embeddings(layers.Layer):
    """What `experimental.models.Ranking` asks of its embedding layer: a dict of ids to a dict of vectors."""

    def __init__(self, rows: dict[str, int]) -> None:
        super().__init__()
        self.tables = {name: layers.Embedding(count, _DIM) for name, count in rows.items()}

    def call(self, features: dict[str, Any]) -> dict[str, Any]:
        return {name: self.tables[name](ids) for name, ids in features.items()}


def _ranking() -> Made:
    """The library's own DLRM."""
    rows = {"user_id": 100, "film_id": 200, "genre": 20}
    ranking = tfrs.experimental.models.Ranking(
        embedding_layer=_Embeddings(rows),
        bottom_stack=tfrs.layers.blocks.MLP([16, _DIM], final_activation="relu"),
        top_stack=tfrs.layers.blocks.MLP([32, 16, 1], final_activation="sigmoid"),
    )
    numbers_in = ("user_age", "film_year")

    def call(**features: Any) -> dict[str, Any]:
        numeric = tf.concat([features[name][:, None] for name in numbers_in], axis=1)
        return {
            "score": ranking({"dense_features": numeric, "sparse_features": {n: features[n] for n in rows}})
        }

    specs = {name: tf.TensorSpec([None], tf.int64, name) for name in rows}
    specs |= {name: tf.TensorSpec([None], tf.float32, name) for name in numbers_in}
    ranking(
        {"dense_features": tf.zeros([2, 2]), "sparse_features": {n: tf.zeros([2], tf.int64) for n in rows}}
    )
    randomise(ranking.variables)
    module = tf.Module()
    module.ranking = ranking
    signature = tf.function(call).get_concrete_function(**specs)
    draws = {name: ids(0, count) for name, count in rows.items()} | {
        name: numbers(0, 2) for name in numbers_in
    }
    return Made(
        lambda folder: tf.saved_model.save(module, folder, signatures=signature),
        ("user_id", "user_age"),
        draws,
        tells="experimental.models.Ranking (DLRM); its tf.squeeze fails for a single row",
    )


MODELS: dict[str, Callable[[], Made]] = {
    "tfrs_Cross": _cross(),
    "tfrs_Cross_low_rank": _cross(projection_dim=4, use_bias=True),
    "tfrs_MultiLayerDCN": _multi_layer_dcn,
    "tfrs_DotInteraction": _dot,
    "tfrs_TwoTower": _two_tower,
    "tfrs_DLRM": _ranking,
}
