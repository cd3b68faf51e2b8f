"""Models that look at a user's history, with ids and words as their inputs, as Keras code writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compiler_parts import WORDS, Inputs, Made, column, keras_model
from keras import layers, ops

#: Entries of the history; width of a row; rows of the tables of ids.
L, E, ROWS = 5, 4, 30
#: Widths of the attention's layers, of the tower, and of a recurrent state.
A1, A2, T, H = 6, 3, 7, 3
#: Columns beside the history: of the user (a word, a number), of the item (the target, a number).
USER, ITEM = E + 1, E + 1


@dataclass
class Sequences:
    """A history, whether each of its entries is real, and the target, from one table; and other columns.

    Args:
        inputs: by name.
        history: [rows, L, E].
        mask: bool [rows, L].
        target: [rows, E].
        user: the user's other columns, [rows, USER].
        item: the target and the item's other column, [rows, ITEM].
    """

    inputs: Inputs
    history: Any
    mask: Any
    target: Any
    user: Any
    item: Any


def _sequences(words: bool) -> Sequences:
    """Inputs as ids, where 0 is no entry, or as words, where "" is none."""
    inputs = Inputs()
    kind = "string" if words else "int64"
    seen, target = inputs("seen", kind, (L,)), inputs("target", kind)
    mask = ops.not_equal(seen, "") if words else ops.not_equal(seen, 0)
    table = layers.Embedding(ROWS, E)
    if words:
        lookup = layers.StringLookup(vocabulary=WORDS, mask_token="")
        seen, target = lookup(seen), lookup(target)
    city = layers.StringLookup(vocabulary=WORDS)(inputs("city", "string"))
    age, price = column(inputs("age", "float32")), column(inputs("price", "float32"))
    user = layers.Concatenate()([layers.Embedding(len(WORDS) + 1, E)(city), age])
    row = table(target)
    item = layers.Concatenate()([row, ops.log1p(price)])
    return Sequences(inputs, table(seen), mask, row, user, item)


def _made(s: Sequences, score: Any) -> Made:
    return Made(keras_model(s.inputs, {"score": ops.sigmoid(score)[:, 0]}), ("seen", "city", "age"))


def _tower(s: Sequences, *interests: Any) -> Made:
    x = layers.Concatenate()([s.user, *interests, s.item])
    return _made(s, layers.Dense(1)(layers.Dense(T, activation="relu")(x)))


class Dice(layers.Layer):
    """DIN's activation: a gate of the normalised value chooses between x and a fraction of it."""

    def build(self, shape: Any) -> None:
        self.normalised = layers.BatchNormalization(center=False, scale=False)
        self.alpha = self.add_weight(shape=(shape[-1],), name="alpha")

    def call(self, x: Any) -> Any:
        gate = ops.sigmoid(self.normalised(x))
        return gate * x + (1.0 - gate) * self.alpha * x


def _attend(keys: Any, s: Sequences, activation: Callable[[Any], Any], softmax: bool = True) -> Any:
    """DIN's weights [rows, L]: a small network over key, target, their difference and their product."""
    query = ops.repeat(s.target[:, None], L, axis=1)
    x = layers.Concatenate()([query, keys, query - keys, query * keys])
    x = activation(layers.Dense(A2)(activation(layers.Dense(A1)(x))))
    x = layers.Dense(1)(x)[..., 0]
    return ops.softmax(ops.where(s.mask, x, -1e9)) if softmax else x * ops.cast(s.mask, "float32")


def _weigh(weights: Any, values: Any) -> Any:
    return ops.sum(weights[..., None] * values, axis=1)


def din_softmax() -> Made:
    s = _sequences(words=False)
    weights = _attend(s.history, s, lambda x: layers.PReLU(shared_axes=[1])(x))
    return _tower(s, _weigh(weights, s.history))


def din_plain() -> Made:
    s = _sequences(words=True)
    return _tower(s, _weigh(_attend(s.history, s, lambda x: Dice()(x), softmax=False), s.history))


def din_dot() -> Made:
    """Scaled products of the target and the keys."""
    s = _sequences(words=False)
    scores = ops.einsum("ble,be->bl", layers.Dense(E)(s.history), s.target) / E**0.5
    weights = ops.softmax(ops.where(s.mask, scores, -1e9))
    return _tower(s, ops.einsum("bl,ble->be", weights, s.history))


def dien() -> Made:
    """A GRU over the history, attention of the target on its states, a GRU over those as they are weighed."""
    s = _sequences(words=True)
    states = layers.GRU(E, return_sequences=True)(s.history, mask=s.mask)
    weights = _attend(states, s, ops.sigmoid)
    return _tower(s, layers.GRU(H)(states * weights[..., None]))


def bst() -> Made:
    """A transformer block over history and target, with positions."""
    s = _sequences(words=False)
    x = ops.concatenate([s.history, s.target[:, None]], axis=1)
    x = x + layers.Embedding(L + 1, E)(ops.arange(L + 1))
    seen = ops.concatenate([s.mask, ops.ones_like(s.mask[:, :1])], axis=1)
    x = layers.LayerNormalization()(
        x + layers.MultiHeadAttention(2, E // 2)(x, x, attention_mask=seen[:, None])
    )
    x = layers.LayerNormalization()(x + layers.Dense(E)(layers.Dense(A1, activation="gelu")(x)))
    return _tower(s, layers.Flatten()(x))


def dsin() -> Made:
    """Self-attention in the session, an LSTM over it both ways, and attention of the target on either."""
    s = _sequences(words=True)
    known = ops.cast(s.mask, "float32")[..., None]
    inner = layers.MultiHeadAttention(2, E // 2)(s.history, s.history, attention_mask=s.mask[:, None])
    inner = inner * known
    states = layers.Bidirectional(layers.LSTM(H, return_sequences=True))(inner)
    states = layers.Dense(E)(states)
    return _tower(
        s, _weigh(_attend(inner, s, ops.sigmoid), inner), _weigh(_attend(states, s, ops.sigmoid), states)
    )


def two_tower() -> Made:
    """The mean of the history in the user's tower; a product of both."""
    s = _sequences(words=False)
    known = ops.cast(s.mask, "float32")
    mean = _weigh(known / ops.maximum(ops.sum(known, axis=1, keepdims=True), 1.0), s.history)
    user = layers.Dense(T)(layers.Concatenate()([s.user, mean]))
    return _made(s, ops.sum(user * layers.Dense(T)(s.item), axis=-1, keepdims=True))


#: Of DIN's attention over keys: h⊙t and the keys' part of it; then the layers on top, and the weighed sum.
_TARGET = L * E * A1
_UNIT = _TARGET + L * A1 * A2 + L * A2
_WEIGHED = L * E


def _head(interest: int) -> int:
    """The tower behind the user's columns."""
    return (interest + ITEM) * T + T


def _block(rows: int) -> int:
    """Self-attention over rows: queries, keys and values; their two products; the layer behind."""
    return rows * 3 * E * E + 2 * rows * rows * E + rows * E * E


@dataclass(frozen=True)
class Case:
    """A model, and what its matrix products cost once the user is done.

    Args:
        make: the model.
        each: multiplications for each candidate.
        once: multiplications for each user.
    """

    make: Callable[[], Made]
    each: int
    once: int


_GRU = 3 * (L * E * E + (L - 1) * E * E)  # the first state is zero
_LSTM = 4 * (L * E * H + (L - 1) * H * H)
MODELS = {
    "din_softmax": Case(din_softmax, _UNIT + _WEIGHED + _head(E), _TARGET + USER * T),
    "din_plain": Case(din_plain, _UNIT + _WEIGHED + _head(E), _TARGET + USER * T),
    "din_dot": Case(din_dot, 2 * _WEIGHED + _head(E), L * E * E + USER * T),
    # Weights are numbers of the candidate: the second GRU's layer on its input is the user's.
    "dien": Case(dien, _UNIT + 3 * (L - 1) * H * H + _head(H), _GRU + _TARGET + 3 * L * E * H + USER * T),
    # The history's queries, keys and values are the user's; from the first products on all meets the target.
    "bst": Case(
        bst,
        _block(L + 1) - 3 * L * E * E + 2 * (L + 1) * E * A1 + _head((L + 1) * E),
        3 * L * E * E + USER * T,
    ),
    "dsin": Case(
        dsin,
        2 * (_UNIT + _WEIGHED) + _head(2 * E),
        _block(L) + 2 * _LSTM + L * 2 * H * E + 2 * _TARGET + USER * T,
    ),
    # The product of the towers is a sum of elementwise ones.
    "two_tower": Case(two_tower, ITEM * T, _WEIGHED + (USER + E) * T),
}
