"""The click model: string lookups, hashing, embeddings and normalisation inside the graph, then a DNN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from dataset import Log
from keras import layers, ops

__all__ = ["Statistics", "build", "measure"]

HASH_BUCKETS = {"user_feature_2": 64, "user_feature_3": 64, "item_feature_2": 128}
VOCABULARIES = ("user_feature_0", "user_feature_1", "item_feature_1", "item_feature_3")
ITEM_WIDTH = 16
WIDTH = 8
HOURS = 24


@dataclass(frozen=True)
class Statistics:
    """What the model needs to know about the training rows before it can be built.

    Args:
        items: every item id of the catalogs, also those not shown yet.
        vocabularies: values of the features that are looked up by their string, ascending.
        price: (mean, variance) of `item_feature_0`.
        click_rate: share of clicked rows; the output starts from it.
    """

    items: tuple[str, ...]
    vocabularies: Mapping[str, tuple[str, ...]]
    price: tuple[float, float]
    click_rate: float


def measure(log: Log) -> Statistics:
    """Vocabularies, moments and click rate of a training log."""
    price = log.features["item_feature_0"].astype(np.float64)
    return Statistics(
        items=tuple(str(name) for c in log.catalogs.values() for name in c.features["item_id"]),
        vocabularies={name: tuple(sorted(set(log.features[name]))) for name in VOCABULARIES},
        price=(float(price.mean()), float(price.var())),
        click_rate=float(log.click.mean()),
    )


def build(
    statistics: Statistics,
    *,
    units: tuple[int, ...] = (256, 128, 64),
    l2: float = 1e-4,
    dropout: float = 0.0,
    seed: int = 0,
) -> keras.Model:
    """An untrained model from the twelve row-wise inputs to {"click": float32 [rows]}, a probability.

    Args:
        statistics: of the training rows.
        units: widths of the dense layers.
        l2: weight of the squared embeddings and kernels in the loss. It also pulls the embedding of "never
            seen in training" towards zero, so an unknown string counts as "no information".
        dropout: share of activations dropped in training, after every dense layer.
        seed: of the initial weights.
    """
    keras.utils.set_random_seed(seed)
    shrink = keras.regularizers.L2(l2)
    inputs: dict[str, Any] = {}

    def feed(name: str, dtype: str, shape: tuple[int | None, ...] = ()) -> Any:
        inputs[name] = keras.Input(shape, dtype=dtype, name=name)
        return inputs[name]

    def table(name: str, rows: int, width: int) -> layers.Embedding:
        return layers.Embedding(rows, width, embeddings_regularizer=shrink, name=f"{name}_embedding")

    def category(name: str) -> Any:
        source = feed(name, "string")
        if name in HASH_BUCKETS:
            ids = layers.Hashing(HASH_BUCKETS[name], name=f"{name}_hash")(source)
            return table(name, HASH_BUCKETS[name], WIDTH)(ids)
        words = list(statistics.vocabularies[name])
        ids = layers.StringLookup(vocabulary=words, num_oov_indices=1, name=f"{name}_lookup")(source)
        return table(name, len(words) + 1, WIDTH)(ids)

    # One vocabulary and one table serve the candidate and the history; "" is the padding of the history.
    lookup = layers.StringLookup(
        vocabulary=list(statistics.items), num_oov_indices=1, mask_token="", name="item_lookup"
    )
    item_table = table("item", len(statistics.items) + 2, ITEM_WIDTH)

    user = [category(f"user_feature_{k}") for k in range(4)]
    user.append(table("hour", HOURS, WIDTH)(feed("hour", "int64")))
    user.append(_mean_of_known(lookup(feed("recent_items", "string", (None,))), item_table))
    item = [item_table(lookup(feed("item_id", "string")))]
    mean, variance = statistics.price
    norm = layers.Normalization(axis=None, mean=mean, variance=variance, name="item_feature_0_norm")
    item.append(norm(feed("item_feature_0", "float32"))[:, None])
    item += [category(f"item_feature_{k}") for k in (1, 2, 3)]
    # Nearly every affinity is 0: divided by its deviation, an affinity of 1 would be 26 deviations away and
    # drown everything else. Divided by ln 2 it is 1.
    item.append((ops.log1p(feed("affinity", "float32")) / math.log(2))[:, None])

    x = layers.Concatenate(name="blocks")([*user, *item])
    for k, width in enumerate(units):
        x = layers.Dense(width, kernel_regularizer=shrink, name=f"dense_{k}")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"norm_{k}")(x)
        x = layers.ReLU(name=f"relu_{k}")(x)
        x = layers.Dropout(dropout, seed=seed + k, name=f"dropout_{k}")(x) if dropout else x
    start = keras.initializers.Constant(np.log(statistics.click_rate / (1 - statistics.click_rate)))
    score = layers.Dense(1, activation="sigmoid", bias_initializer=start, name="score")(x)
    return keras.Model(inputs, {"click": score[:, 0]}, name="obd")


def _mean_of_known(ids: Any, item_table: layers.Embedding) -> Any:
    """Mean embedding of the ids that are not padding; zero for an empty history.

    Args:
        ids: int64 [rows, length], 0 is padding.
        item_table: the table to read.
    """
    mask = ops.cast(ops.not_equal(ids, 0), "float32")[..., None]
    return ops.sum(item_table(ids) * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)
