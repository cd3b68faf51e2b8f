"""SipHash-2-4 of many strings at once: what TensorFlow's `StringToHashBucketStrong` computes.

After Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .strings import FlatStrings
from .wordwise import Words, fold_words

__all__ = ["siphash64"]

_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_U = [np.uint64(i) for i in range(65)]  # numpy keeps uint64 only among uint64 operands
_FINAL = np.uint64(0xFF)


def siphash64(strings: FlatStrings, key: tuple[int, int]) -> Words:
    """SipHash-2-4 of every string under a key of two 64-bit words: uint64 [n]."""
    state = np.empty((4, len(strings)), np.uint64)
    for index, constant in enumerate(_INITIAL):
        state[index] = np.uint64(constant ^ (key[index % 2] & 0xFFFFFFFFFFFFFFFF))
    rest = fold_words(strings, state, _compress)
    # The last word carries the length's low byte above what is left of the string.
    last = rest | (strings.lengths.astype(np.uint64) << _U[56])
    v0, v1, v2, v3 = _compress(last, *state)
    v2 = v2 ^ _FINAL
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    hashes: Words = v0 ^ v1 ^ v2 ^ v3
    return hashes


def _compress(word: Any, v0: Any, v1: Any, v2: Any, v3: Any) -> tuple[Any, Any, Any, Any]:
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> tuple[Any, Any, Any, Any]:
    v0 = v0 + v1
    v2 = v2 + v3
    v1 = _rotate(v1, 13) ^ v0
    v3 = _rotate(v3, 16) ^ v2
    v0 = _rotate(v0, 32)
    v2 = v2 + v1
    v0 = v0 + v3
    v1 = _rotate(v1, 17) ^ v2
    v3 = _rotate(v3, 21) ^ v0
    return v0, v1, _rotate(v2, 32), v3


def _rotate(word: Any, bits: int) -> Any:
    return (word << _U[bits]) | (word >> _U[64 - bits])
