"""The ranking models of the precision record, each trained for some seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from half.clicks import HISTORY, ITEMS, MOST_VIEWS, SHOPS, USERS

__all__ = ["NETWORKS", "Trained", "train"]

Array = np.ndarray[Any, Any]
Trained = tuple[keras.Model, set[str], set[str]]


def _inputs(*names: str) -> dict[str, Any]:
    kinds = {"user": "int32", "history": "int32", "item": "int32", "shop": "int32"}
    shapes: dict[str, tuple[int, ...]] = {"history": (HISTORY,)}
    return {n: keras.Input(shapes.get(n, ()), dtype=kinds.get(n, "float32"), name=n) for n in names}


def _fields(x: Mapping[str, Any], width: int) -> list[Any]:
    """One embedding a field; the history is the mean of its items, from the items' own table."""
    items = layers.Embedding(ITEMS, width, name="items_table")
    fields = [
        layers.Embedding(USERS, width, name="users_table")(x["user"]),
        items(x["item"]),
        layers.Embedding(SHOPS, width, name="shops_table")(x["shop"]),
    ]
    return [*fields, ops.mean(items(x["history"]), axis=1)] if "history" in x else fields


def _numbers(x: Mapping[str, Any]) -> list[Any]:
    """Age and price, brought to the order of 1 by the model itself."""
    age = layers.Rescaling(1 / 15, -50 / 15, name="age_scaled")(x["age"][:, None])
    return [age, ops.log1p(x["price"])[:, None]]


def _tower(x: Any, *widths: int, name: str) -> Any:
    for index, width in enumerate(widths):
        x = layers.Dense(width, activation="relu", name=f"{name}_{index}")(x)
    return x


def _score(x: Any, name: str) -> Any:
    return layers.Dense(1, activation="sigmoid", name=f"{name}_head")(x)[:, 0]


def deepfm() -> tuple[dict[str, Any], dict[str, Any]]:
    """Factorisation machine beside a tower; the FM's difference of squares is what FP16 likes least."""
    x = _inputs("user", "age", "history", "item", "shop", "price")
    fields = _fields(x, 16)
    stacked = ops.stack(fields, axis=1)
    total = ops.sum(stacked, axis=1)
    pairs = 0.5 * ops.sum(total * total - ops.sum(stacked * stacked, axis=1), axis=-1, keepdims=True)
    deep = _tower(ops.concatenate([*fields, *_numbers(x)], -1), 256, 128, 64, name="tower")
    logit = layers.Dense(1, name="deep_head")(deep) + pairs
    return x, {"click": ops.sigmoid(logit)[:, 0]}


def dcn_v2() -> tuple[dict[str, Any], dict[str, Any]]:
    """Two full cross layers beside a tower."""
    x = _inputs("user", "age", "history", "item", "shop", "price")
    start = crossed = ops.concatenate([*_fields(x, 16), *_numbers(x)], -1)
    for index in range(2):
        crossed = start * layers.Dense(start.shape[-1], name=f"cross_{index}")(crossed) + crossed
    deep = _tower(start, 256, 128, name="tower")
    return x, {"click": _score(ops.concatenate([crossed, deep], -1), "click")}


def mmoe() -> tuple[dict[str, Any], dict[str, Any]]:
    """Four experts, two tasks, softmax gates."""
    x = _inputs("user", "age", "history", "item", "shop", "price")
    start = ops.concatenate([*_fields(x, 16), *_numbers(x)], -1)
    experts = ops.stack([_tower(start, 128, 64, name=f"expert_{k}") for k in range(4)], axis=1)
    outputs = {}
    for task in ("click", "buy"):
        gate = layers.Dense(4, activation="softmax", name=f"{task}_gate")(start)
        mixed = ops.sum(experts * gate[..., None], axis=1)
        outputs[task] = _score(_tower(mixed, 32, name=f"{task}_tower"), task)
    return x, outputs


def din() -> tuple[dict[str, Any], dict[str, Any]]:
    """Attention of the candidate over the history, whose items cross to the network one by one."""
    x = _inputs("user", "age", "history", "item", "shop", "price")
    items = layers.Embedding(ITEMS, 16, name="items_table")
    history, target = items(x["history"]), items(x["item"])[:, None]
    repeated = ops.repeat(target, HISTORY, axis=1)
    pairs = ops.concatenate([history, repeated, history - repeated, history * repeated], -1)
    weights = layers.Dense(1, name="weight")(layers.Dense(32, activation="relu", name="pair")(pairs))
    weights = ops.where(x["history"][..., None] > 0, weights, -1e9)
    attended = ops.sum(ops.softmax(weights, axis=1) * history, axis=1)
    users = layers.Embedding(USERS, 16, name="users_table")(x["user"])
    shops = layers.Embedding(SHOPS, 16, name="shops_table")(x["shop"])
    start = ops.concatenate([attended, target[:, 0], users, shops, *_numbers(x)], -1)
    return x, {"click": _score(_tower(start, 128, 64, name="tower"), "click")}


def exploding() -> tuple[dict[str, Any], dict[str, Any]]:
    """A tower that takes a raw count of up to a million beside its embeddings."""
    x = _inputs("user", "age", "item", "shop", "price", "views")
    start = ops.concatenate([*_fields(x, 16), *_numbers(x), x["views"][:, None]], -1)
    return x, {"click": _score(_tower(start, 128, 64, name="tower"), "click")}


NETWORKS: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
    "DeepFM": deepfm,
    "DCN-v2": dcn_v2,
    "MMoE": mmoe,
    "DIN": din,
    "tower with a raw count of 1e6": exploding,
}


def train(
    name: str, rows: Mapping[str, Array], labels: Mapping[str, Array], epochs: int, folder: Path
) -> Trained:
    """Train and export a network.

    Args:
        name: which one.
        rows: features.
        labels: clicks a task.
        epochs: how often the rows are seen.
        folder: where the SavedModel goes.

    Returns:
        The model, the features that it reads, and its tasks.
    """
    keras.utils.set_random_seed(1)
    inputs, outputs = NETWORKS[name]()
    model = keras.Model(inputs, outputs)
    seen = {feature: rows[feature] for feature in inputs}
    if "views" in inputs:
        # Trained on millions of views; the unit then moves into the weights, and the model takes raw counts.
        seen["views"] = seen["views"] / np.float32(MOST_VIEWS)
    model.compile(keras.optimizers.Adam(2e-3), loss="binary_crossentropy")
    model.fit(seen, {task: labels[task] for task in outputs}, batch_size=2048, epochs=epochs, verbose=0)
    if "views" in inputs:
        first = model.get_layer("tower_0")
        kernel = np.array(first.kernel)
        kernel[-1] /= np.float32(MOST_VIEWS)
        first.kernel.assign(kernel)
    model.export(str(folder), verbose=False)
    return model, set(inputs), set(outputs)
