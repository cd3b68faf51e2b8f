"""TensorFlow's older 64-bit hashes: `Hash64` (a MurmurHash2) and the mixing of fingerprints in a cross.

The algorithms are those of tsl/platform/hash.cc and tsl/platform/fingerprint.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .strings import FlatStrings
from .wordwise import Words, fold_words

__all__ = ["hash64", "mix_fingerprints"]

_M = np.uint64(0xC6A4A7935BD1E995)
_R = np.uint64(47)
_SEED = np.uint64(0xDECAFCAFFE)


def hash64(strings: FlatStrings) -> Words:
    """`Hash64` of every string, which the legacy `StringToHashBucket` reduces: uint64 [n]."""
    state = (_SEED ^ (strings.lengths.astype(np.uint64) * _M))[None]
    rest = fold_words(strings, state, _update)
    hashes = state[0]
    hashes = np.where(strings.lengths & 7, (hashes ^ rest) * _M, hashes)
    hashes = _fold(hashes) * _M
    folded: Words = _fold(hashes)
    return folded


def mix_fingerprints(key: int, columns: Sequence[Words]) -> Words:
    """What `SparseCross` makes of a cross's fingerprints, before its modulo: uint64 [n].

    Args:
        key: the op's `hash_key`.
        columns: fingerprints of each crossed feature, uint64 [n]: FarmHash64 of a string, or the integer.
    """
    mixed = np.full(len(columns[0]), np.uint64(key), np.uint64)
    for column in columns:
        mixed = mixed ^ _M ^ (_fold(column * _M) * _M)
        mixed = _fold(mixed * _M) * _M
        mixed = _fold(mixed)
    return mixed


def _update(word: Any, state: Any) -> tuple[Any]:
    return ((state ^ (_fold(word * _M) * _M)) * _M,)


def _fold(word: Any) -> Any:
    return word ^ (word >> _R)
