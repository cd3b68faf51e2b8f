"""Our own Keras 3 models with their preprocessing in the graph: feature crosses, towers, several tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import layers, ops
from keras_fields import DIM, Raw, dense, finish
from subject_parts import Made, ids, numbers, words

__all__ = ["MODELS"]


def _logit(x: Any) -> Any:
    return layers.Dense(1)(x)


def _deepfm() -> Made:
    raw = Raw()
    fields = [raw.user_id(), raw.age(), raw.item_id(), raw.category(), raw.shop(), raw.brand()]
    stacked = ops.stack(fields, axis=1)
    pairs = ops.square(ops.sum(stacked, axis=1)) - ops.sum(ops.square(stacked), axis=1)
    linear = layers.Embedding(400, 1, name="item_id_linear")(raw.inputs["item_id"])
    x = layers.Concatenate()([layers.Flatten()(stacked), raw.income(), raw.price()])
    deep = _logit(dense(x, 32, 16, batchnorm=True))
    return finish(raw, deep + linear + 0.5 * ops.sum(pairs, axis=1, keepdims=True))


def _deepfm_ids() -> Made:
    """Ids in, no preprocessing: the features were made outside of the model."""
    raw = Raw()
    rows = {"device": 20, "hour": 24, "film": 300, "genre": 12}
    given = {name: raw.new(name, "int32", ids(0, count)) for name, count in rows.items()}
    fields = [layers.Embedding(rows[name], DIM, name=f"{name}_embedding")(x) for name, x in given.items()]
    linear = sum(layers.Embedding(rows[name], 1, name=f"{name}_linear")(x) for name, x in given.items())
    stacked = ops.stack(fields, axis=1)
    pairs = ops.square(ops.sum(stacked, axis=1)) - ops.sum(ops.square(stacked), axis=1)
    deep = dense(layers.Concatenate()([*fields, raw.price()]), 32, 16, batchnorm=True)
    return finish(raw, _logit(deep) + linear + 0.5 * ops.sum(pairs, axis=1, keepdims=True), "ids only")


def _wide_and_deep() -> Made:
    """Wide: one-hot, multi-hot and a hashed cross of two columns; deep: embeddings."""
    raw = Raw()
    users, items = raw.users(), raw.items()
    crossed = layers.HashedCrossing(60, output_mode="one_hot")(
        (raw.new("city", "string", words(["Oslo", "Köln", "Lima"]), (1,)),
         raw.new("hour", "int64", ids(0, 24), (1,)))
    )  # fmt: skip
    wide = layers.Concatenate()([users[1], items[4], crossed])
    deep = dense(layers.Concatenate()([*users, *items]), 32, 16)
    return finish(raw, _logit(wide) + _logit(deep), "hashed cross")


def _dcn_v2() -> Made:
    raw = Raw()
    x0 = layers.Concatenate()([*raw.users(), *raw.items()])
    x = x0
    for _ in range(2):
        x = x0 * layers.Dense(x0.shape[-1])(x) + x
    return finish(raw, _logit(layers.Concatenate()([x, dense(x0, 32, 16)])))


def _dcn_v2_low_rank() -> Made:
    raw = Raw()
    x0 = layers.LayerNormalization()(layers.Concatenate()([*raw.items(), *raw.users()]))
    x = x0
    for _ in range(2):
        experts = [
            layers.Dense(x0.shape[-1])(layers.Dense(6, activation="tanh", use_bias=False)(x)) for _ in "ab"
        ]
        gate = layers.Dense(2, activation="softmax")(x)
        x = x + x0 * ops.sum(ops.stack(experts, axis=2) * gate[:, None, :], axis=2)
    return finish(raw, _logit(dense(x, 16)))


def _autoint() -> Made:
    raw = Raw()
    fields = [raw.user_id(), raw.age(), raw.item_id(), raw.category(), raw.shop(), raw.brand()]
    x = ops.stack(fields, axis=1)
    for _ in range(2):
        x = ops.relu(layers.MultiHeadAttention(2, DIM // 2)(x, x) + layers.Dense(DIM, use_bias=False)(x))
    return finish(raw, _logit(layers.Flatten()(x)), "self-attention over fields")


def _experts(x: Any, count: int) -> list[Any]:
    return [dense(x, 24, 12) for _ in range(count)]


def _mix(x: Any, experts: list[Any]) -> Any:
    gate = layers.Dense(len(experts), activation="softmax")(x)
    return ops.sum(ops.stack(experts, axis=1) * gate[..., None], axis=1)


def _mmoe() -> Made:
    raw = Raw()
    x = layers.Concatenate()([*raw.users(), *raw.items()])
    experts = _experts(x, 4)
    return finish(
        raw, {t: ops.sigmoid(_logit(dense(_mix(x, experts), 8))) for t in ("click", "like", "share")}
    )


def _ple() -> Made:
    raw = Raw()
    first = layers.Concatenate()([*raw.users(), *raw.items()])
    inputs: dict[str, Any] = {"click": first, "buy": first, "shared": first}
    for _ in range(2):
        own = {name: _experts(x, 2) for name, x in inputs.items()}
        mixed = {t: _mix(inputs[t], [*own[t], *own["shared"]]) for t in ("click", "buy")}
        inputs = {**mixed, "shared": _mix(inputs["shared"], [e for es in own.values() for e in es])}
    return finish(raw, {t: ops.sigmoid(_logit(inputs[t])) for t in ("click", "buy")})


def _esmm() -> Made:
    raw = Raw()
    x = layers.Concatenate()([*raw.users(), *raw.items()])
    click, after = (ops.sigmoid(_logit(dense(x, 32, 16, batchnorm=True))) for _ in range(2))
    return finish(raw, {"ctr": click, "ctcvr": click * after})


def _two_tower() -> Made:
    raw = Raw()
    user, item = (dense(layers.Concatenate()(side), 32, 16) for side in (raw.users(), raw.items()))
    user, item = (
        layers.UnitNormalization()(layers.Dense(8)(user)),
        layers.UnitNormalization()(layers.Dense(8)(item)),
    )
    return finish(raw, {"score": ops.sum(user * item, axis=-1) / 0.5})


def _encodings() -> Made:
    """Every output mode of the encoding layers."""
    raw = Raw()
    device = raw.new("device", "string", words(["phone", "tablet", "tv"]), (1,))
    hour = raw.new("hour", "int64", ids(0, 24), (1,))
    colours = raw.new("colours", "string", words(["red", "green", "blue"], 5, pad=""), (5,))
    sizes = raw.new("sizes", "int64", ids(0, 9, 3), (3,))
    weight = raw.new("weight", "float32", numbers(0, 10), (1,))
    lookup = layers.StringLookup(vocabulary=["red", "green", "blue"], num_oov_indices=2, output_mode="count")
    parts = [
        layers.StringLookup(vocabulary=["phone", "tablet", "tv"], output_mode="one_hot")(device),
        layers.CategoryEncoding(24, output_mode="one_hot")(hour),
        lookup(colours),
        layers.Hashing(7, output_mode="multi_hot")(colours),
        layers.CategoryEncoding(9, output_mode="multi_hot")(sizes),
        layers.CategoryEncoding(9, output_mode="count")(sizes),
        layers.Discretization([1.0, 2.5, 7.0], output_mode="one_hot")(weight),
        layers.Normalization(mean=2.0, variance=3.0)(weight),
    ]
    return finish(raw, _logit(dense(layers.Concatenate()(parts), 24)), "one-hot, multi-hot, count")


def _text() -> Made:
    """A title, split into words in the graph, multi-hot; another one as embeddings of its words."""
    raw = Raw()
    known = ["blue", "shoe", "red", "hat", "winter", "for", "kids"]
    title = raw.new("title", "string", words(["Blue shoe", "red HAT, for kids", "winter", "hat hat hat"]))
    text = layers.TextVectorization(vocabulary=known, output_mode="multi_hot")(title)
    seen = layers.TextVectorization(vocabulary=known, output_mode="int", output_sequence_length=5)(title)
    mean = layers.GlobalAveragePooling1D()(layers.Embedding(len(known) + 2, DIM)(seen))
    x = layers.Concatenate()([text, mean, *raw.users(), raw.item_id()])
    return finish(raw, _logit(dense(x, 24)), "lower-case, regex, split in the graph")


def _crosses() -> Made:
    """Feature crosses of strings and integers, hashed with and without a salt, and masked."""
    raw = Raw()
    user, item = raw.user_id(), raw.item_id()
    place = raw.new("city", "string", words(["Oslo", "Köln", "Lima"]))
    kind = raw.new("kind", "string", words(["book", "film", ""]))
    number = raw.new("number", "int64", ids(-5, 100))
    crossed = layers.HashedCrossing(50)((place, kind))
    salted = layers.Hashing(20, salt=[133, 137])(kind)
    masked = layers.Hashing(20, mask_value="")(kind)
    counted = layers.Hashing(16)(number)
    found = [layers.Embedding(50, DIM)(x) for x in (crossed, salted, masked, counted)]
    return finish(raw, _logit(dense(layers.Concatenate()([user, item, *found]), 24)), "salted hash, cross")


MODELS: dict[str, Callable[[], Made]] = {
    "keras_DeepFM": _deepfm,
    "keras_DeepFM_ids": _deepfm_ids,
    "keras_WideDeep": _wide_and_deep,
    "keras_DCNv2": _dcn_v2,
    "keras_DCNMix": _dcn_v2_low_rank,
    "keras_AutoInt": _autoint,
    "keras_MMoE": _mmoe,
    "keras_PLE": _ple,
    "keras_ESMM": _esmm,
    "keras_TwoTower": _two_tower,
    "keras_encodings": _encodings,
    "keras_text": _text,
    "keras_crosses": _crosses,
}
