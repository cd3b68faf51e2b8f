"""Our own Keras 3 models that look at the user's history: attention, GRU, transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import layers, ops
from keras_fields import DIM, Raw, dense, finish
from subject_parts import Made, ids, words

__all__ = ["MODELS"]

_LENGTH = 6
_ROWS = 16  # of the categories' shared table


def _seen(raw: Raw) -> tuple[Any, Any, Any]:
    """History [rows, L, DIM], its mask [rows, L], and the candidate [rows, DIM], from one table."""
    found, mask = raw.history(_LENGTH)
    raw.category()
    table = layers.Embedding(_ROWS, DIM, name="category_embedding")
    known = raw.draws["category"]["known"]
    candidate = layers.StringLookup(vocabulary=known, mask_token="")(raw.inputs["category"])
    return table(found), mask, table(candidate)


def _score(raw: Raw, parts: list[Any], tells: str = "") -> Made:
    x = layers.Concatenate()([*parts, raw.user_id(), raw.age(), raw.item_id(), raw.price()])
    return finish(raw, layers.Dense(1)(dense(x, 32, 16)), tells)


def _attend(keys: Any, query: Any, mask: Any, softmax: bool = True) -> Any:
    """Weights [rows, L] of DIN's activation unit."""
    length = keys.shape[1]
    repeated = ops.repeat(query[:, None], length, axis=1)
    x = ops.concatenate([repeated, keys, repeated - keys, repeated * keys], axis=-1)
    x = layers.Dense(16, activation="sigmoid")(x)
    x = layers.Dense(1)(layers.Dense(8, activation="sigmoid")(x))[..., 0]
    if not softmax:
        return x * mask
    return ops.softmax(ops.where(mask > 0, x, -(2.0**32) + 1), axis=-1)


def _din(softmax: bool = True) -> Made:
    raw = Raw()
    keys, mask, query = _seen(raw)
    weights = _attend(keys, query, mask, softmax)
    interest = ops.sum(keys * weights[..., None], axis=1)
    return _score(raw, [interest, query], "attention over the history")


def _din_dot() -> Made:
    """Scaled dot-product attention of the candidate over the history."""
    raw = Raw()
    keys, mask, query = _seen(raw)
    logits = ops.einsum("bld,bd->bl", layers.Dense(DIM)(keys), query) / DIM**0.5
    weights = ops.softmax(logits + (1.0 - mask) * -1e9, axis=-1)
    return _score(raw, [ops.einsum("bl,bld->bd", weights, keys), query], "einsum attention")


def _dien() -> Made:
    """A GRU reads the history, attention weighs its states, a second GRU reads them."""
    raw = Raw()
    keys, mask, query = _seen(raw)
    states = layers.GRU(DIM, return_sequences=True, unroll=True)(keys)
    weights = _attend(states, query, mask)
    final = layers.GRU(DIM, unroll=True)(states * weights[..., None])
    return _score(raw, [final, query], "two GRUs, unrolled by Keras")


def _gru() -> Made:
    """As Keras exports a GRU by default: a While loop, over the masked history."""
    raw = Raw()
    keys, _, query = _seen(raw)
    return _score(raw, [layers.GRU(DIM)(keys), query], "GRU as a loop")


def _bst() -> Made:
    """A transformer block over history and candidate, with positions."""
    raw = Raw()
    keys, mask, query = _seen(raw)
    x = ops.concatenate([keys, query[:, None]], axis=1)
    x = x + layers.Embedding(_LENGTH + 1, DIM, name="position_embedding")(ops.arange(_LENGTH + 1))
    seen = ops.concatenate([mask, ops.ones_like(mask[:, :1])], axis=1)
    attended = layers.MultiHeadAttention(2, DIM // 2)(x, x, attention_mask=ops.cast(seen[:, None], "bool"))
    x = layers.LayerNormalization()(x + attended)
    x = layers.LayerNormalization()(x + layers.Dense(DIM)(layers.Dense(16, activation="gelu")(x)))
    return _score(raw, [layers.Flatten()(x)], "transformer block")


def _youtube() -> Made:
    """Mean of the history with Keras's own mask (mask_zero); Keras gives NaN for an empty one."""
    raw = Raw()
    found, _ = raw.history(_LENGTH, least=1)
    seen = layers.Embedding(_ROWS, DIM, mask_zero=True, name="category_embedding")(found)
    user = dense(ops.concatenate([layers.GlobalAveragePooling1D()(seen), raw.age()], axis=-1), 24, 8)
    item = dense(ops.concatenate([raw.item_id(), raw.shop(), raw.price()], axis=-1), 24, 8)
    return finish(raw, {"score": ops.sigmoid(ops.sum(user * item, axis=-1))}, "mask_zero")


def _any_length() -> Made:
    """DIN over a history of any length, which the spec then fixes."""
    raw = Raw()
    ids_in = raw.new("history_shops", "int64", ids(0, 50, _LENGTH, pad=0), (None,))
    table = layers.Embedding(50, DIM, name="shop_embedding")
    keys, mask = table(ids_in), ops.cast(ops.not_equal(ids_in, 0), "float32")
    query = table(raw.new("candidate", "int64", ids(0, 50)))
    logits = ops.sum(layers.Dense(DIM)(keys) * query[:, None], axis=-1)
    weights = ops.softmax(ops.where(mask > 0, logits, -1e9), axis=-1)
    interest = ops.sum(keys * weights[..., None], axis=1)
    made = _score(raw, [interest, query], "history of any length")
    made.spec["lengths"] = {"history_shops": _LENGTH}
    return made


def _bags() -> Made:
    """Bags of any length, pooled in the ways that model code writes; user and item side."""
    raw = Raw()
    shops = raw.new("history_shops", "int64", ids(0, 50, [0, 9]), (None,))
    labels = raw.new("labels", "string", words(["a", "b", "ц"], [1, 5]), (None,))
    mask = ops.cast(ops.not_equal(shops, 0), "float32")[..., None]
    rows = layers.Embedding(50, DIM, name="shop_embedding")(shops)
    mean = ops.sum(rows * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)
    root = ops.sum(rows * mask, axis=1) / ops.sqrt(ops.maximum(ops.sum(mask, axis=1), 1.0))
    total = ops.sum(layers.Embedding(4, DIM)(layers.StringLookup(vocabulary=["a", "b", "ц"])(labels)), axis=1)
    return _score(raw, [mean, root, total], "mean, sqrt-n and sum pooling")


MODELS: dict[str, Callable[[], Made]] = {
    "keras_DIN": _din,
    "keras_DIN_plain": lambda: _din(softmax=False),
    "keras_DIN_dot": _din_dot,
    "keras_DIN_any_length": _any_length,
    "keras_DIEN": _dien,
    "keras_GRU": _gru,
    "keras_BST": _bst,
    "keras_YouTube": _youtube,
    "keras_bags": _bags,
}
