"""The dense sides of ranking models of many families, written as their authors write them in Keras 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from compiler_dense import Dense
from keras import layers, ops

F, D, L, E = 5, 8, 6, 12
"""Fields, their width, length of the history, width of its elements."""


def tower(x: Any, *widths: int, activation: str = "relu") -> Any:
    for width in widths:
        x = layers.Dense(width, activation=activation)(x)
    return x


def score(x: Any) -> Any:
    return layers.Dense(1, activation="sigmoid")(x)


def fields(user: Any, item: Any) -> Any:
    return layers.Concatenate(axis=1)([user, item])


def of_fields(build: Callable[..., Any]) -> Callable[[], Dense]:
    """A model over fields: two of the user, three of the item."""

    def make() -> Dense:
        return Dense.of_keras(
            lambda user, item: build(fields(user, item)), user=("user", (2, D)), item=("item", (F - 2, D))
        )

    return make


def of_history(build: Callable[..., Any]) -> Callable[[], Dense]:
    """A model over a user's history and a target item; `steps` counts its real elements by a sign."""

    def make() -> Dense:
        return Dense.of_keras(
            build,
            history=("user", (L, E)),
            present=("user", (L,)),
            target=("item", (E,)),
            context=("user", (3,)),
        )

    return make


def mask_of(present: Any) -> Any:
    return ops.greater(present, -0.5)


def xdeepfm(x: Any) -> Any:
    """CIN: outer products of fields, compressed by a 1-D convolution."""
    state, pooled = x, []
    for maps in (4, 3):
        outer = ops.einsum("bhd,bmd->bhmd", state, x)
        outer = layers.Reshape((-1, D))(outer)
        state = layers.Permute((2, 1))(
            layers.Conv1D(maps, 1, activation="relu")(layers.Permute((2, 1))(outer))
        )
        pooled.append(ops.sum(state, axis=-1))
    return score(layers.Concatenate()([*pooled, tower(layers.Flatten()(x), 16)]))


def cin_of_the_paper(x: Any) -> Any:
    """The authors' code: split, matmul of transposed parts with D as the leading dimension, conv1d."""

    class Cin(layers.Layer):
        def build(self, shape: Any) -> None:
            self.filters = self.add_weight(shape=(1, F * F, 4), name="filters")

        def call(self, x: Any) -> Any:
            split = tf.split(x, D * [1], 2)
            dot = tf.matmul(split, split, transpose_b=True)  # [D, rows, F, F]
            dot = tf.transpose(tf.reshape(dot, [D, -1, F * F]), [1, 0, 2])
            out = tf.nn.conv1d(dot, self.filters, 1, "VALID")
            return tf.reduce_sum(tf.transpose(out, [0, 2, 1]), -1)

    return score(Cin()(x))


def autoint(x: Any) -> Any:
    for _ in range(2):
        x = ops.relu(layers.MultiHeadAttention(2, 4)(x, x) + layers.Dense(D, use_bias=False)(x))
    return score(layers.Flatten()(x))


def autoint_of_the_paper(x: Any) -> Any:
    """Heads stacked in front of the rows."""

    class Interacting(layers.Layer):
        def build(self, shape: Any) -> None:
            self.w = [self.add_weight(shape=(D, D), name=f"w{i}") for i in range(4)]

        def call(self, x: Any) -> Any:
            q, k, v, r = (tf.tensordot(x, w, axes=(-1, 0)) for w in self.w)
            q, k, v = (tf.stack(tf.split(t, 2, axis=2)) for t in (q, k, v))
            weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 2.0)
            out = tf.concat(tf.split(tf.matmul(weights, v), 2), axis=-1)
            return tf.nn.relu(tf.squeeze(out, axis=0) + r)

    return score(layers.Flatten()(Interacting()(x)))


def fibinet(x: Any) -> Any:
    """SENET and a bilinear interaction with one matrix a pair."""
    squeezed = ops.mean(x, axis=-1)
    excited = tower(squeezed, 3, F)
    weighted = x * excited[:, :, None]
    pairs = [
        layers.Dense(D, use_bias=False)(source[:, i]) * source[:, j]
        for source in (x, weighted)
        for i in range(F)
        for j in range(i + 1, F)
    ]
    return score(tower(layers.Concatenate()(pairs), 16))


def pnn(x: Any) -> Any:
    """Inner products by gathers of rows and columns, outer products with a kernel."""
    rows = [i for i in range(F) for j in range(i + 1, F)]
    columns = [j for i in range(F) for j in range(i + 1, F)]
    p, q = ops.take(x, rows, axis=1), ops.take(x, columns, axis=1)
    inner = ops.sum(p * q, axis=-1)

    class Outer(layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(D, len(rows), D), name="kernel")

        def call(self, p: Any, q: Any) -> Any:
            turned = tf.transpose(
                tf.reduce_sum(tf.multiply(tf.expand_dims(p, 1), self.kernel), axis=-1), [0, 2, 1]
            )
            return tf.reduce_sum(turned * q, -1)

    return score(tower(layers.Concatenate()([layers.Flatten()(x), inner, Outer()(p, q)]), 16))


def nfm(x: Any) -> Any:
    pooled = 0.5 * (ops.square(ops.sum(x, axis=1)) - ops.sum(ops.square(x), axis=1))
    return score(tower(layers.Dropout(0.3)(pooled), 16))


def afm(x: Any) -> Any:
    """Attention over all pairs of fields."""
    pairs = [x[:, i : i + 1] * x[:, j : j + 1] for i in range(F) for j in range(i + 1, F)]
    products = layers.Concatenate(axis=1)(pairs)
    weights = layers.Softmax(axis=1)(
        layers.Dense(1, use_bias=False)(layers.Dense(4, activation="relu")(products))
    )
    return score(ops.sum(weights * products, axis=1))


def fwfm(x: Any) -> Any:
    class Weighted(layers.Layer):
        def build(self, shape: Any) -> None:
            self.w = self.add_weight(shape=(F, F), name="w")

        def call(self, x: Any) -> Any:
            gram = tf.einsum("bid,bjd->bij", x, x)
            upper = tf.linalg.band_part(gram, 0, -1) - tf.linalg.band_part(gram, 0, 0)
            return tf.reduce_sum(upper * self.w, axis=[1, 2])[:, None]

    return score(layers.Concatenate()([Weighted()(x), layers.Flatten()(x)]))


def ccpm(x: Any) -> Any:
    """Convolution over fields, k-max pooling."""
    y = x[..., None]
    for maps, k in ((4, 4), (3, 2)):
        y = KMax(k)(layers.Conv2D(maps, (3, 1), padding="same", activation="tanh")(y))
    return score(layers.Flatten()(y))


class KMax(layers.Layer):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def call(self, y: Any) -> Any:
        turned = tf.transpose(y, [0, 3, 2, 1])
        return tf.transpose(tf.math.top_k(turned, k=self.k, sorted=True)[0], [0, 3, 2, 1])


def fgcnn(x: Any) -> Any:
    y = layers.Conv2D(3, (3, 1), padding="same", activation="tanh")(x[..., None])
    y = layers.MaxPooling2D((2, 1))(y)
    made = layers.Reshape((F, D))(layers.Dense(F * D, activation="tanh")(layers.Flatten()(y)))
    both = layers.Concatenate(axis=1)([x, made])
    pooled = layers.AveragePooling1D(2, padding="same")(both)
    return score(layers.Flatten()(layers.Concatenate(axis=1)([both, pooled])))


def dcn_mix(x: Any) -> Any:
    """Low-rank experts of DCN-Mix."""
    x0 = layers.Flatten()(x)

    class Mix(layers.Layer):
        def build(self, shape: Any) -> None:
            self.u = self.add_weight(shape=(2, F * D, 4), name="u")
            self.c = self.add_weight(shape=(2, 4, 4), name="c")
            self.gate = self.add_weight(shape=(F * D, 2), name="gate")

        def call(self, x0: Any) -> Any:
            x = x0[:, :, None]
            outputs = []
            for e in range(2):
                v = tf.nn.tanh(tf.matmul(tf.transpose(self.u[e]), x))
                v = tf.nn.tanh(tf.matmul(self.c[e], v))
                outputs.append(tf.squeeze(x0[:, :, None] * tf.matmul(self.u[e], v), axis=2))
            gates = tf.nn.softmax(tf.matmul(x0, self.gate))
            mixed = tf.matmul(tf.stack(outputs, 2), gates[:, :, None])
            return tf.squeeze(mixed + x, axis=2)

    return score(Mix()(x0))


def din(history: Any, present: Any, target: Any, context: Any) -> Any:
    query = ops.repeat(ops.expand_dims(target, 1), L, axis=1)
    seen = layers.Concatenate()([query, history, query - history, query * history])
    weights = layers.Dense(1)(layers.Dense(8, activation="sigmoid")(seen))[..., 0]
    weights = ops.softmax(ops.where(mask_of(present), weights, -1e9), axis=-1)
    interest = ops.matmul(ops.expand_dims(weights, 1), history)[:, 0]
    return score(tower(layers.Concatenate()([interest, target, context]), 16, 8))


def bst(history: Any, present: Any, target: Any, context: Any) -> Any:
    """A transformer block over the history and the target."""
    sequence = layers.Concatenate(axis=1)([history, ops.expand_dims(target, 1)])
    sequence = sequence + layers.Embedding(L + 1, E)(ops.arange(L + 1))
    mask = layers.Concatenate(axis=1)([mask_of(present), ops.ones_like(target[:, :1], dtype="bool")])
    attended = layers.MultiHeadAttention(2, 4)(sequence, sequence, attention_mask=mask[:, None, :])
    x = layers.LayerNormalization()(sequence + attended)
    x = layers.LayerNormalization()(x + layers.Dense(E)(layers.Dense(16, activation="gelu")(x)))
    return score(layers.LeakyReLU()(layers.Dense(8)(layers.Concatenate()([layers.Flatten()(x), context]))))


def heads_in_the_batch(history: Any, present: Any, target: Any, context: Any) -> Any:
    """A transformer whose heads are concatenated in front of the rows, keys masked by a tile, causal."""

    class Transformer(layers.Layer):
        def build(self, *shapes: Any) -> None:
            self.w = [self.add_weight(shape=(E, E), name=f"w{i}") for i in range(3)]

        def call(self, x: Any, present: Any, target: Any) -> Any:
            q, k, v = (tf.tensordot(x, w, axes=(-1, 0)) for w in self.w)
            q, k, v = (tf.concat(tf.split(t, 2, axis=2), axis=0) for t in (q, k, v))
            products = tf.matmul(q, k, transpose_b=True) / (k.shape[-1] ** 0.5)
            masks = tf.tile(present > -0.5, [2, 1])
            masks = tf.tile(tf.expand_dims(masks, 1), [1, tf.shape(x)[1], 1])
            padding = tf.ones_like(products) * (-(2**32) + 1)
            products = tf.where(masks, products, padding)
            lower = tf.linalg.band_part(tf.ones_like(products), -1, 0)
            products = tf.where(lower > 0, products, padding)
            weights = tf.nn.softmax(products)
            out = tf.concat(tf.split(tf.matmul(weights, v), 2, axis=0), axis=2)
            mean, variance = tf.nn.moments(out + x, [-1], keepdims=True)
            out = (out + x - mean) * tf.math.rsqrt(variance + 1e-6)
            return tf.reduce_sum(tf.reduce_mean(out, 1) * target, -1, keepdims=True)

    return score(layers.Concatenate()([Transformer()(history, present, target), target, context]))


def ple(x: Any) -> Any:
    x = layers.Flatten()(x)
    shared = [tower(x, 8) for _ in range(2)]
    outputs = {}
    for task in ("click", "buy"):
        experts = ops.stack([*shared, tower(x, 8)], axis=1)
        gate = layers.Dense(3, activation="softmax")(x)
        outputs[task] = score(tower(ops.sum(experts * gate[:, :, None], axis=1), 8))
    return outputs


def esmm(x: Any) -> Any:
    x = layers.Flatten()(x)
    click, buy = score(tower(x, 8)), score(tower(x, 8))
    return {"click": click, "both": click * buy}


def two_tower() -> Dense:
    def build(user: Any, item: Any) -> Any:
        u = layers.UnitNormalization()(tower(user, 16, 8))
        i = layers.UnitNormalization()(tower(item, 16, 8))
        return ops.sum(u * i, axis=-1) / 0.07

    return Dense.of_keras(build, user=("user", (10,)), item=("item", (7,)))


def normalised(activation: str) -> Callable[[], Dense]:
    """A tower with layer norms and an activation."""

    def build(user: Any, item: Any) -> Any:
        x = layers.Concatenate()([user, item])
        for width in (16, 8):
            x = layers.Activation(activation)(layers.LayerNormalization()(layers.Dense(width)(x)))
        return score(x)

    return lambda: Dense.of_keras(build, user=("user", (10,)), item=("item", (7,)))


FAMILIES: dict[str, Callable[[], Dense]] = {
    "xdeepfm": of_fields(xdeepfm),
    "cin_of_the_paper": of_fields(cin_of_the_paper),
    "autoint": of_fields(autoint),
    "autoint_of_the_paper": of_fields(autoint_of_the_paper),
    "fibinet": of_fields(fibinet),
    "pnn": of_fields(pnn),
    "nfm": of_fields(nfm),
    "afm": of_fields(afm),
    "fwfm": of_fields(fwfm),
    "ccpm": of_fields(ccpm),
    "fgcnn": of_fields(fgcnn),
    "dcn_mix": of_fields(dcn_mix),
    "din": of_history(din),
    "bst": of_history(bst),
    "heads_in_the_batch": of_history(heads_in_the_batch),
    "ple": of_fields(ple),
    "esmm": of_fields(esmm),
    "two_tower": two_tower,
    **{
        f"normalised_{name}": normalised(name)
        for name in ("gelu", "swish", "mish", "hard_silu", "selu", "log_softmax", "softsign", "relu6")
    },
}
