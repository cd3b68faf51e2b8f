"""100,000 strings of every kind for comparisons with TensorFlow's ops."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from bireme_runtime.strings import FlatStrings

__all__ = ["corpus", "flat", "integers", "tensor"]

_COUNT = 100_000
_ALPHABETS = (
    b"abcdefghijklmnopqrstuvwxyzABCXYZ 0123456789_-|",
    " \t\n\v\f\räöüßÄÖÜжЖ未知🙂é".encode(),
    bytes(range(256)),
    b"\0\0\0 a",
)


@functools.cache
def corpus() -> tuple[bytes, ...]:
    """Lengths 0 to 300, and some of 1 to 70 kB; text, UTF-8 cut anywhere, arbitrary bytes, many NULs."""
    rng = np.random.default_rng(20)
    lengths = np.minimum(rng.geometric(1 / 24, _COUNT) - 1, 300)
    lengths[:2000] = rng.integers(0, 301, 2000)
    lengths[2000:2301] = np.arange(301)
    texts = [
        rng.choice(np.frombuffer(_ALPHABETS[i % len(_ALPHABETS)], np.uint8), int(length)).tobytes()
        for i, length in enumerate(lengths)
    ]
    texts += [rng.bytes(int(length)) for length in [*rng.integers(1000, 70_000, 12), 70_000, 65_536, 4095]]
    texts += [b"", b"\0", b" ", "ﬁnal Σίσυφος".encode(), b"x" * 70_000]
    return tuple(texts)


@functools.cache
def flat() -> FlatStrings:
    """The corpus as the runtime holds it."""
    return FlatStrings.from_list(corpus())


@functools.cache
def tensor() -> tf.Tensor:
    """The corpus as TensorFlow holds it."""
    return tf.constant(list(corpus()))


@functools.cache
def integers() -> np.ndarray:
    """As many integers of every size."""
    rng = np.random.default_rng(21)
    shift = rng.integers(0, 63, len(corpus()))
    values = rng.integers(-(2**63), 2**63 - 1, len(corpus())) >> shift
    values[:8] = (0, 1, -1, 9, 10, 2**63 - 1, -(2**63), -(2**31))
    return values
