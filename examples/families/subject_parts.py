"""What the test subjects are made of: how requests are drawn, random weights, and a model ready to export.

Nothing here imports TensorFlow: a subject's module first chooses which Keras TensorFlow shall use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Draw", "Made", "ids", "numbers", "randomise", "words"]

#: How one input's values are made up, as JSON values; requests_for.py reads it.
Draw = dict[str, Any]
#: None: one value; an int: that many; [lo, hi]: any number in between; {"pad": …, "length": …}: padded to it.
Length = int | list[int] | None


@dataclass(frozen=True)
class Made:
    """A model ready to export.

    Args:
        save: writes the SavedModel into a folder.
        user: the user side inputs.
        draws: input → how its values are made up.
        spec: further fields of the build spec.
        tells: what is special about it, for the table.
    """

    save: Callable[[str], None]
    user: tuple[str, ...]
    draws: dict[str, Draw]
    spec: dict[str, Any] = field(default_factory=dict)
    tells: str = ""


def words(
    known: Iterable[str], length: Length = None, unknown: float = 0.1, pad: str | None = None, least: int = 0
) -> Draw:
    """Strings: mostly of `known`, a share of `unknown` others (empty, non-ASCII, long, with a NUL).

    Args:
        known: what a vocabulary of the model holds.
        length: of a sequence.
        unknown: share of strings outside.
        pad: a sequence of fixed length is filled up with it from a random place on.
        least: elements before that place.
    """
    draw = {"kind": "words", "known": list(known), "length": length, "unknown": unknown, "pad": pad}
    return {**draw, "least": least}


def ids(low: int, high: int, length: Length = None, pad: int | None = None) -> Draw:
    """Integers in [low, high); see `words` for the rest."""
    return {"kind": "ids", "low": low, "high": high, "length": length, "pad": pad, "least": 0}


def numbers(low: float = 0.0, high: float = 5.0, length: Length = None) -> Draw:
    """Floats in [low, high]."""
    return {"kind": "numbers", "low": low, "high": high, "length": length, "pad": None}


def randomise(variables: Iterable[Any], seed: int = 1) -> None:
    """Random values for everything trained: zeros and ones would hide faults, saturated scores too.

    Kernels are scaled by their fan-in, so that scores stay apart from 0 and 1; statistics and scales of
    normalisations are positive; integer and string variables are left alone.

    Args:
        variables: Keras or TensorFlow variables.
        seed: same seed, same weights.
    """
    rng = np.random.default_rng(seed)
    for variable in variables:
        if "float32" not in str(variable.dtype):
            continue
        name = getattr(variable, "path", None) or variable.name
        shape = tuple(variable.shape)
        values = rng.normal(0.0, 1.0, shape)
        if "variance" in name or "gamma" in name:
            values = 0.75 + 0.5 * np.abs(values)
        elif "embedding" in name or "linear" in name or len(shape) < 2:
            values = 0.3 * values
        else:
            values = 1.2 * values / np.sqrt(np.prod(shape[:-1]))
        variable.assign(np.asarray(values, np.float32))
