"""Four ranking networks behind their embeddings, sized like the ones in production papers, in Keras.

50 user fields and 12 item fields of 16 columns each; the first item field is the target of the attention.
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
#: Entries of a user's history.
HISTORY = 50


@dataclass(frozen=True)
class Network:
    """A Keras model whose inputs are what crosses the cut.

    Args:
        model: inputs `user_*` and `item_*`.
        note: its sizes in words.
    """

    model: Any
    note: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Input → its shape behind the rows, in the order in which the model reads them."""
        return {tensor.name: tuple(tensor.shape[1:]) for tensor in self.model.inputs}


def _fields() -> list[Any]:
    names = [f"user_{k}" for k in range(_USER_FIELDS)] + [f"item_{k}" for k in range(_ITEM_FIELDS)]
    return [keras.Input((_WIDTH,), name=name) for name in names]


def _tower(x: Any, widths: tuple[int, ...]) -> Any:
    for width in widths:
        x = layers.Dense(width, activation="relu")(x)
    return x


def _score(x: Any, name: str = "score") -> Any:
    return layers.Activation("sigmoid", name=name)(x)


def deepfm() -> Network:
    """Second-order interactions of all fields beside a tower."""
    fields = _fields()
    flat = layers.Concatenate()(fields)
    stacked = layers.Reshape((len(fields), _WIDTH))(flat)
    squared, squares = ops.square(ops.sum(stacked, axis=1)), ops.sum(ops.square(stacked), axis=1)
    pairs = 0.5 * ops.sum(squared - squares, axis=1, keepdims=True)
    score = layers.Dense(1)(_tower(flat, (512, 256, 128))) + pairs
    return Network(keras.Model(fields, {"score": _score(score)}), "tower 512-256-128")


def dcn_v2() -> Network:
    """Cross layers with full matrices beside a tower."""
    fields = _fields()
    first = layers.Concatenate()(fields)
    crossed = first
    for _ in range(2):
        crossed = first * layers.Dense(first.shape[-1])(crossed) + crossed
    both = layers.Concatenate()([crossed, _tower(first, (512, 256))])
    return Network(
        keras.Model(fields, {"score": _score(layers.Dense(1)(both))}), "2 cross layers, tower 512-256"
    )


def mmoe() -> Network:
    """Experts shared by two tasks through gates."""
    fields = _fields()
    flat = layers.Concatenate()(fields)
    experts = ops.stack([_tower(flat, (256, 128)) for _ in range(6)], axis=1)
    outputs = {}
    for task in ("click", "buy"):
        gate = layers.Dense(6, activation="softmax")(flat)
        mixed = ops.sum(experts * ops.expand_dims(gate, -1), axis=1)
        outputs[task] = _score(layers.Dense(1)(_tower(mixed, (64,))), task)
    return Network(keras.Model(fields, outputs), "6 experts 256-128, 2 tasks")


def din() -> Network:
    """Attention of the target over the user's history, its first layer over [h, t, h−t, h⊙t]."""
    fields = _fields()
    history = keras.Input((HISTORY, _WIDTH), name="user_history")
    mask = keras.Input((HISTORY,), name="user_mask")
    target = layers.RepeatVector(HISTORY)(fields[_USER_FIELDS])
    compared = layers.Concatenate()([history, target, history - target, history * target])
    weights = layers.Dense(1)(_tower(compared, (64, 32)))
    weights = weights * ops.cast(ops.expand_dims(ops.not_equal(mask, 0.0), -1), "float32")
    interest = ops.sum(weights * history, axis=1)
    score = layers.Dense(1)(_tower(layers.Concatenate()([*fields, interest]), (512, 256, 64)))
    return Network(
        keras.Model([*fields, history, mask], {"score": _score(score)}),
        f"L = {HISTORY}, attention 64-32, tower 512-256-64",
    )


MODELS: dict[str, Callable[[], Network]] = {"DeepFM": deepfm, "DCN-v2": dcn_v2, "MMoE": mmoe, "DIN": din}


def with_random_weights(network: Network, seed: int = 0) -> Network:
    """Fill in weights that keep activations, and so scores, in an ordinary range."""
    rng = np.random.default_rng(seed)
    for variable in network.model.weights:
        variable.assign(rng.normal(0.0, 1.0 / np.sqrt(variable.shape[0]), variable.shape))
    return network
