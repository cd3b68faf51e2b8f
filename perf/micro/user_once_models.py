"""Four ranking networks with their features and tables, sized like the ones in production papers, in Keras.

50 user fields and 12 item fields of 16 columns each, most of them ids and some of them words; the first item
field is the target of the attention and shares its vocabulary and table with the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bireme.compiler.graph  # noqa: F401  # sets TensorFlow's switches before Keras imports it

# isort: split
import keras
import numpy as np
from keras import layers, ops

__all__ = ["HISTORY", "MODELS", "Network", "with_random_weights"]

_WIDTH, _USER_FIELDS, _ITEM_FIELDS = 16, 50, 12
#: Every so many fields one is a word that is looked up in a vocabulary.
_WORDS_EVERY = 6
#: Rows of a table.
_ROWS = 1000
#: Entries of a user's history.
HISTORY = 50


@dataclass(frozen=True)
class Network:
    """A Keras model that takes ids and words.

    Args:
        model: inputs `user_*` and `item_*`.
        note: its sizes in words.
    """

    model: Any
    note: str

    @property
    def user(self) -> tuple[str, ...]:
        """The inputs of the user side."""
        return tuple(tensor.name for tensor in self.model.inputs if tensor.name.startswith("user"))


class _Fields:
    """Inputs, and the row of its own table that each stands for, user side first."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.target: Callable[[Any], Any] = lambda ids: ids
        self.words: Callable[[Any], Any] = lambda ids: ids
        self.rows = [self._row("user", k) for k in range(_USER_FIELDS)]
        self.rows += [self._row("item", k) for k in range(_ITEM_FIELDS)]

    def _row(self, side: str, number: int) -> Any:
        text = number % _WORDS_EVERY == 0
        field = keras.Input((), dtype="string" if text else "int64", name=f"{side}_{number}")
        self.inputs.append(field)
        table = layers.Embedding(_ROWS, _WIDTH, name=f"{side}_{number}_embedding")
        if not text:
            return table(field)
        words = layers.StringLookup(
            vocabulary=[f"word {k}" for k in range(_ROWS - 2)], mask_token="", name=f"{side}_{number}_words"
        )
        if (side, number) == ("item", 0):
            self.target, self.words = table, words
        return table(words(field))

    def history(self) -> tuple[Any, Any]:
        """What the user has seen, as the target's rows [rows, HISTORY, 16]; where it is a word, as a mask."""
        seen = keras.Input((HISTORY,), dtype="string", name="user_history")
        self.inputs.append(seen)
        ids = self.words(seen)
        return self.target(ids), ops.not_equal(ids, 0)


def _tower(x: Any, widths: tuple[int, ...]) -> Any:
    for width in widths:
        x = layers.Dense(width, activation="relu")(x)
    return x


def _score(x: Any, name: str = "score") -> Any:
    return layers.Activation("sigmoid", name=name)(x)


def deepfm() -> Network:
    """Second-order interactions of all fields beside a tower."""
    fields = _Fields()
    flat = layers.Concatenate()(fields.rows)
    stacked = layers.Reshape((len(fields.rows), _WIDTH))(flat)
    squared, squares = ops.square(ops.sum(stacked, axis=1)), ops.sum(ops.square(stacked), axis=1)
    pairs = 0.5 * ops.sum(squared - squares, axis=1, keepdims=True)
    score = layers.Dense(1)(_tower(flat, (512, 256, 128))) + pairs
    return Network(keras.Model(fields.inputs, {"score": _score(score)}), "tower 512-256-128")


def dcn_v2() -> Network:
    """Cross layers with full matrices beside a tower."""
    fields = _Fields()
    first = layers.Concatenate()(fields.rows)
    crossed = first
    for _ in range(2):
        crossed = first * layers.Dense(first.shape[-1])(crossed) + crossed
    both = layers.Concatenate()([crossed, _tower(first, (512, 256))])
    return Network(
        keras.Model(fields.inputs, {"score": _score(layers.Dense(1)(both))}), "2 cross layers, tower 512-256"
    )


def mmoe() -> Network:
    """Experts shared by two tasks through gates."""
    fields = _Fields()
    flat = layers.Concatenate()(fields.rows)
    experts = ops.stack([_tower(flat, (256, 128)) for _ in range(6)], axis=1)
    outputs = {}
    for task in ("click", "buy"):
        gate = layers.Dense(6, activation="softmax")(flat)
        mixed = ops.sum(experts * ops.expand_dims(gate, -1), axis=1)
        outputs[task] = _score(layers.Dense(1)(_tower(mixed, (64,))), task)
    return Network(keras.Model(fields.inputs, outputs), "6 experts 256-128, 2 tasks")


def din() -> Network:
    """Attention of the target over the user's history, its first layer over [h, t, h−t, h⊙t]."""
    fields = _Fields()
    history, mask = fields.history()
    target = layers.RepeatVector(HISTORY)(fields.rows[_USER_FIELDS])
    compared = layers.Concatenate()([history, target, history - target, history * target])
    weights = layers.Dense(1)(_tower(compared, (64, 32)))
    weights = weights * ops.cast(ops.expand_dims(mask, -1), "float32")
    interest = ops.sum(weights * history, axis=1)
    score = layers.Dense(1)(_tower(layers.Concatenate()([*fields.rows, interest]), (512, 256, 64)))
    return Network(
        keras.Model(fields.inputs, {"score": _score(score)}),
        f"L = {HISTORY}, attention 64-32, tower 512-256-64",
    )


MODELS: dict[str, Callable[[], Network]] = {"DeepFM": deepfm, "DCN-v2": dcn_v2, "MMoE": mmoe, "DIN": din}


def with_random_weights(network: Network, seed: int = 0) -> Network:
    """Fill in weights that keep activations, and so scores, in an ordinary range."""
    rng = np.random.default_rng(seed)
    for variable in network.model.weights:
        spread = 0.5 if "embedding" in variable.path else 1.0 / np.sqrt(variable.shape[0])
        variable.assign(rng.normal(0.0, spread, variable.shape))
    return network
