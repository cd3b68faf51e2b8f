"""What small models are made of, in Keras and in plain TensorFlow; weights are random but seeded."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

WORDS = ["red", "green", "blue", "äöü", "x y"]


@dataclass
class Made:
    """A model ready to export."""

    model: Any
    user: tuple[str, ...]
    signature: Any = None
    spec: dict[str, Any] = field(default_factory=dict)

    def export(self, folder: Path) -> None:
        if self.signature is None:
            self.model.export(str(folder), verbose=False)
        else:
            tf.saved_model.save(self.model, str(folder), signatures=self.signature)


class Inputs(dict[str, Any]):
    """Keras inputs by name."""

    def __call__(self, name: str, dtype: str, shape: tuple[int | None, ...] = ()) -> Any:
        self[name] = keras.Input(shape, dtype=dtype, name=name)
        return self[name]


def keras_model(inputs: Inputs, outputs: dict[str, Any], seed: int = 1) -> keras.Model:
    """A model whose weights are all random: zeros and ones would hide faults."""
    model = keras.Model(dict(inputs), outputs)
    rng = np.random.default_rng(seed)
    for variable in model.variables:
        if variable.dtype != "float32":
            continue
        values = rng.normal(0.0, 0.4, variable.shape)
        positive = "variance" in variable.path or "gamma" in variable.path
        variable.assign(np.abs(values) + 0.5 if positive else values)
    return model


def column(x: Any) -> Any:
    """[rows] → [rows, 1], the way model code writes it."""
    return x[:, None]


def head(x: Any, name: str) -> Any:
    """A score of its own for one transform."""
    return layers.Dense(1, activation="sigmoid", name=name)(x)[:, 0]


class Module(tf.Module):
    """Holds whatever a signature function captures."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def variable(*shape: int, seed: int = 0, name: str = "Variable") -> tf.Variable:
    return tf.Variable(np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32), name=name)


def table(keys: list[Any], ids: list[int], default: int) -> Any:
    kind = tf.string if isinstance(keys[0], (str, bytes)) else tf.int64
    source = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, kind), tf.constant(ids, tf.int64))
    return tf.lookup.StaticHashTable(source, default)


def signature(function: Callable[..., Any], **inputs: tuple[Any, list[int | None]]) -> Any:
    """A concrete function whose inputs may have any name that TensorFlow allows."""
    specs = {name: tf.TensorSpec(shape, dtype, name) for name, (dtype, shape) in inputs.items()}
    return tf.function(function, autograph=False).get_concrete_function(**specs)


def made(
    parts: dict[str, Any],
    function: Callable[..., Any],
    user: tuple[str, ...],
    spec: dict[str, Any] | None = None,
    **inputs: tuple[Any, list[int | None]],
) -> Made:
    """A tf.Module model: `function(module, **inputs)` gives the outputs."""
    module = Module(**parts)

    def call(**values: Any) -> Any:
        return function(module, **values)

    module.call = signature(call, **inputs)
    return Made(module, user, signature=module.call, spec=spec or {})
