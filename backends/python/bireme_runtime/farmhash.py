"""FarmHash Fingerprint64 of many strings at once: what TensorFlow's `StringToHashBucketFast` computes.

The algorithm picks one of several mixes by the string's length, so each length class is one function here
that takes all its strings. In these functions `lengths` is uint64 [n], or [1] when all lengths are equal:
it broadcasts, and everything that depends on the length alone is computed once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .strings import FlatStrings

__all__ = ["farmhash64", "hash_bucket"]

Words = npt.NDArray[np.uint64]
# Seven words that a long string's blocks are folded into: x, y, z, v (two), w (two); each an array or scalar.
State = Sequence[Any]

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_SEED = 81
_WRAP = (1 << 64) - 1
_U = [np.uint64(i) for i in range(65)]  # numpy keeps uint64 only among uint64 operands
_FEW = 4  # Below this many strings, numpy's scalars beat its arrays at 64 bytes a step.


def farmhash64(strings: FlatStrings) -> Words:
    """FarmHash Fingerprint64 of every string: uint64 [n]."""
    if not len(strings):
        return np.empty(0, np.uint64)
    shortest, longest = int(strings.lengths.min()), int(strings.lengths.max())
    first, last = bisect_left(_LONGEST, shortest), bisect_left(_LONGEST, longest)
    if first == last:
        lengths = strings.lengths[:1] if shortest == longest else strings.lengths
        return _CLASSES[first](strings, lengths.astype(np.uint64))
    hashes = np.empty(len(strings), np.uint64)
    classes = np.searchsorted(_LONGEST, strings.lengths)
    for index in range(first, last + 1):
        rows = np.flatnonzero(classes == index)
        if rows.size:
            part = strings.take(rows)
            hashes[rows] = _CLASSES[index](part, part.lengths.astype(np.uint64))
    return hashes


def hash_bucket(strings: FlatStrings, buckets: int) -> npt.NDArray[np.int64]:
    """`farmhash64` modulo `buckets`: int64 [n] in 0..buckets-1."""
    return (farmhash64(strings) % np.uint64(buckets)).view(np.int64)


def _rotate(word: Any, bits: int) -> Any:
    return (word >> _U[bits]) | (word << _U[64 - bits])


def _fold(word: Any) -> Any:
    return word ^ (word >> _U[47])


def _pair(low: Any, high: Any, multiplier: Any) -> Any:
    """Two words → one."""
    a = _fold((low ^ high) * multiplier)
    return _fold((high ^ a) * multiplier) * multiplier


def _multiplier(lengths: Words) -> Words:
    return lengths * _U[2] + _K2


def _empty(strings: FlatStrings, _: Words) -> Words:
    return np.full(len(strings), _K2)


def _to_3(strings: FlatStrings, lengths: Words) -> Words:
    word = strings.words(0)
    byte, bits = np.uint64(0xFF), _U[3]
    middle = (word >> (lengths >> _U[1] << bits)) & byte
    last = (word >> (lengths - _U[1] << bits)) & byte
    y = (word & byte) + (middle << _U[8])
    z = lengths + (last << _U[2])
    hashes: Words = _fold(y * _K2 ^ z * _K0) * _K2
    return hashes


def _to_7(strings: FlatStrings, lengths: Words) -> Words:
    half = np.uint64(0xFFFFFFFF)
    head = strings.words(0) & half
    tail = strings.words(strings.lengths - 4) & half
    hashes: Words = _pair(lengths + (head << _U[3]), tail, _multiplier(lengths))
    return hashes


def _to_16(strings: FlatStrings, lengths: Words) -> Words:
    multiplier = _multiplier(lengths)
    a = strings.words(0) + _K2
    b = strings.words(strings.lengths - 8)
    c = _rotate(b, 37) * multiplier + a
    d = (_rotate(a, 25) + b) * multiplier
    hashes: Words = _pair(c, d, multiplier)
    return hashes


def _ends(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    return _rotate(a + b, 43) + _rotate(c, 30) + d, a + _rotate(b + _K2, 18) + c


def _to_32(strings: FlatStrings, lengths: Words) -> Words:
    multiplier = _multiplier(lengths)
    head = strings.block(0, 2)
    tail = strings.block(strings.lengths - 16, 2)
    low, high = _ends(head[:, 0] * _K1, head[:, 1], tail[:, 1] * multiplier, tail[:, 0] * _K2)
    hashes: Words = _pair(low, high, multiplier)
    return hashes


def _to_64(strings: FlatStrings, lengths: Words) -> Words:
    multiplier = _multiplier(lengths)
    head = strings.block(0, 4)
    tail = strings.block(strings.lengths - 32, 4)
    a = head[:, 0] * _K2
    y, other = _ends(a, head[:, 1], tail[:, 3] * multiplier, tail[:, 2] * _K2)
    z = _pair(y, other, multiplier)
    e, f = head[:, 2] * multiplier, head[:, 3]
    g, h = (y + tail[:, 0]) * multiplier, (z + tail[:, 1]) * multiplier
    hashes: Words = _pair(_rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, multiplier)
    return hashes


def _long(strings: FlatStrings, _: Words) -> Words:
    """Strings above 64 bytes: whole blocks first, all strings side by side, then the last 64 bytes."""
    lengths = strings.lengths.astype(np.uint64)
    blocks = (strings.lengths - 1) >> 6
    order = np.argsort(-blocks, kind="stable")
    ordered, blocks = strings.take(order), blocks[order]
    state = _fold_blocks(ordered, blocks)
    hashes = np.empty(len(strings), np.uint64)
    hashes[order] = _finish(state, ordered.block(ordered.lengths - 64, 8).T, lengths[order])
    return hashes


def _fold_blocks(strings: FlatStrings, blocks: npt.NDArray[np.int64]) -> Words:
    """Fold the first `blocks[i]` (≥ 1, descending) 64-byte blocks; every string's state: uint64 [7, n]."""
    finals = np.empty((7, len(strings)), np.uint64)
    y = (_SEED * int(_K1) + 113) & _WRAP
    z = (y * int(_K2) + 113) & _WRAP
    z = (z ^ (z >> 47)) * int(_K2) & _WRAP
    x = strings.words(0) + np.uint64(_SEED * int(_K2) & _WRAP)
    zero = np.zeros_like(x)
    state: State = (x, zero + np.uint64(y), zero + np.uint64(z), zero, zero, zero, zero)
    active, step = len(strings), 0
    while active > _FEW:
        state = _round(state, strings.take(slice(active)).block(64 * step, 8).T, _K1, _U[1])
        step += 1
        still = int(np.searchsorted(-blocks, -step))  # strings with more than `step` blocks
        finals[:, still:active] = [word[still:] for word in state]
        state, active = [word[:still] for word in state], still
    for row in range(active):
        one = [word[row] for word in state]
        finals[:, row] = _fold_one(one, strings, row, step, int(blocks[row]))
    return finals


def _fold_one(state: State, strings: FlatStrings, row: int, first: int, last: int) -> State:
    """Fold blocks `first` up to `last` of one string into its state of seven scalars."""
    offset = int(strings.starts[row]) + 64 * first
    words = list(np.ndarray((8 * (last - first),), "<u8", strings.data, offset))
    with np.errstate(over="ignore"):  # Words wrap by design; numpy warns of it for scalars only.
        for word in range(0, len(words), 8):
            state = _round(state, words[word : word + 8], _K1, _U[1])
    return state


def _round(state: State, block: Any, multiplier: Any, factor: Any) -> State:
    """Fold eight words, of one string or of all, into the state."""
    x, y, z, v0, v1, w0, w1 = state
    x = _rotate(x + y + v0 + block[1], 37) * multiplier
    y = _rotate(y + v1 + block[6], 42) * multiplier
    x = x ^ (w1 * factor)
    y = y + v0 * factor + block[5]
    z = _rotate(z + w0, 33) * multiplier
    v0, v1 = _half(block[:4], v1 * multiplier, x + w0)
    w0, w1 = _half(block[4:], z + w1, y + block[2])
    return z, y, x, v0, v1, w0, w1


def _half(block: Any, a: Any, b: Any) -> tuple[Any, Any]:
    a = a + block[0]
    b = _rotate(b + a + block[3], 21)
    total = a + block[1] + block[2]
    return total + block[3], b + _rotate(total, 44) + a


def _finish(state: Words, last: Words, lengths: Words) -> Words:
    """Fold the last 64 bytes, `last` [8, n], which overlap the blocks before, and close."""
    x, y, z, v0, v1, w0, w1 = state
    multiplier = _K1 + ((z & np.uint64(0xFF)) << _U[1])
    w0 = w0 + ((lengths - _U[1]) & _U[63])
    v0 = v0 + w0
    w0 = w0 + v0
    z, y, x, v0, v1, w0, w1 = _round((x, y, z, v0, v1, w0, w1), last, multiplier, _U[9])
    hashes: Words = _pair(
        _pair(v0, w0, multiplier) + _fold(y) * _K0 + x,
        _pair(v1, w1, multiplier) + z,
        multiplier,
    )
    return hashes


_LONGEST = [0, 3, 7, 16, 32, 64]  # bytes; the last class has no end
_CLASSES: list[Callable[[FlatStrings, Words], Words]] = [_empty, _to_3, _to_7, _to_16, _to_32, _to_64, _long]
