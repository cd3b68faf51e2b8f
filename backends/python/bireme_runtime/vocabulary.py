"""Exact key → id maps for strings and for integers, as flat arrays in one mapped file.

The string map sorts its keys by a 64-bit hash. A directory, indexed by the top bits of a hash, says where
the keys of each bucket begin; a lookup starts there and steps over the few smaller hashes of its bucket.
No two keys share a hash (the build sees to it), so one candidate is left, and it is accepted only if its
length and all its bytes agree: an unknown string is never taken for a known one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import Arrays, read_arrays, write_arrays
from .strings import FlatStrings

__all__ = ["IntVocabulary", "Vocabulary", "merge"]

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_STRINGS, _INTEGERS = "string vocabulary", "integer vocabulary"
_HASH, _START, _LENGTH, _ID = range(4)  # columns of an entry
_SCRAMBLE = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_LARGEST = np.uint64((1 << 64) - 1)  # the sentinel's hash; no key may have it


class Vocabulary:
    """Exact string → id map.

    Args:
        seed: which hash function separates all keys.
        longest: length of the longest key, bytes; -1 without keys.
        entries: int64 [n + 1, 4], ascending by hash (read as uint64): hash, start of the key in `data`,
            length of the key, id. The last row is a sentinel that no string matches.
        directory: uint32 [2^bits]: for every value of a hash's top bits, the first entry not below it.
        data: uint8 [bytes]: the keys, laid out as in `FlatStrings`.
    """

    def __init__(
        self,
        seed: int,
        longest: int,
        entries: Ints,
        directory: npt.NDArray[np.uint32],
        data: npt.NDArray[np.uint8],
    ) -> None:
        self.seed = seed
        self.longest = longest
        self.entries = entries
        self.directory = directory
        self.data = data
        self.coefficients = _coefficients(seed, longest)
        self._shift = np.uint64(65 - directory.size.bit_length())

    def __len__(self) -> int:
        return len(self.entries) - 1

    @classmethod
    def build(cls, keys: Sequence[bytes], ids: Ints, parts: Ints | None = None) -> Vocabulary:
        """Map `keys[i]` to `ids[i]`.

        Args:
            keys: the strings.
            ids: int64, as many.
            parts: for several vocabularies in one, which of them each key belongs to.

        Raises:
            ValueError: a key occurs twice (named), or there are not as many ids as keys.
        """
        ids = _ids(ids, len(keys))
        strings = FlatStrings.from_list(keys)
        longest = int(strings.lengths.max(initial=-1))
        for seed in itertools.count():
            hashes = _hash(strings, _coefficients(seed, longest), parts)
            order = np.argsort(hashes, kind="stable")
            ordered = hashes[order]
            equal = np.flatnonzero(ordered[1:] == ordered[:-1])
            for first, second in zip(order[equal].tolist(), order[equal + 1].tolist(), strict=True):
                if keys[first] == keys[second] and (parts is None or parts[first] == parts[second]):
                    raise ValueError(f"key {keys[first]!r} occurs twice, at {first} and {second}")
            if not equal.size and not (ordered[-1:] == _LARGEST).any():
                break
        sorted_keys = FlatStrings.from_list([keys[index] for index in order.tolist()])
        entries = np.empty((len(keys) + 1, 4), np.int64)
        entries[:-1, _HASH] = ordered.view(np.int64)
        entries[:-1, _START] = sorted_keys.starts
        entries[:-1, _LENGTH] = sorted_keys.lengths
        entries[:-1, _ID] = ids[order]
        entries[-1] = (-1, 0, -1, 0)  # -1 is `_LARGEST`, and no length
        bits = max(1, (2 * len(keys) - 1).bit_length())  # at most half a key a bucket
        edges = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
        directory = np.searchsorted(ordered, edges).astype(np.uint32)
        return cls(seed, longest, entries, directory, sorted_keys.data)

    def keys(self) -> list[bytes]:
        """Every key, in an order that depends on the keys only."""
        keys = FlatStrings(self.data, self.entries[:-1, _START], self.entries[:-1, _LENGTH])
        return [keys[index] for index in range(len(keys))]

    def lookup(self, strings: FlatStrings, default: int | Ints, parts: Ints | None = None) -> Ints:
        """Ids of `strings`: int64 [n].

        Args:
            strings: what to look up.
            default: id of strings that are no key; one for all, or one each.
            parts: the part that each string is looked up in, if the vocabulary was built with parts.
        """
        short = strings.lengths <= self.longest
        if not short.all():  # Never hash what cannot be a key.
            ids = np.array(np.broadcast_to(default, len(strings)), np.int64)
            rows = np.flatnonzero(short)
            if rows.size:
                mine = None if parts is None else parts[rows]
                ids[rows] = self.lookup(strings.take(rows), ids[rows], mine)
            return ids
        hashes = _hash(strings, self.coefficients, parts)
        found = self._candidates(hashes)
        keys = FlatStrings(self.data, found[:, _START], found[:, _LENGTH])
        known = strings.equal(keys)
        if parts is not None:  # The same string has another hash in another part.
            known &= found[:, _HASH].view(np.uint64) == hashes
        return np.where(known, found[:, _ID], default)

    def save(self, path: Path) -> None:
        """Write to `path`, all or nothing; equal vocabularies give equal bytes."""
        meta = {"seed": self.seed, "longest": self.longest}
        arrays: Arrays = {"entries": self.entries, "directory": self.directory, "data": self.data}
        write_arrays(path, _STRINGS, meta, arrays)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Map what `save` wrote.

        Raises:
            ValueError: the file is missing, is something else, or is not whole.
        """
        meta, arrays = read_arrays(path, _STRINGS)
        found = cls(meta["seed"], meta["longest"], arrays["entries"], arrays["directory"], arrays["data"])
        if not found._leads_nowhere_else():
            raise ValueError(f"{path}: is damaged; rebuild the repository with `bireme build`")
        return found

    def _leads_nowhere_else(self) -> bool:
        """Whether no search ends outside the arrays: the C kernel takes their word for it."""
        starts, lengths = self.entries[:-1, _START], self.entries[:-1, _LENGTH]
        return bool(
            self.entries[-1, _HASH] == self.entries[-1, _LENGTH] == -1
            and self.directory.max(initial=0) < len(self.entries)
            and starts.min(initial=0) >= 0
            and starts.max(initial=0) <= self.data.size
            and lengths.min(initial=0) >= 0
            and lengths.max(initial=-1) <= self.longest
            and (starts + lengths).max(initial=0) <= self.data.size
        )

    def _candidates(self, hashes: Words) -> Ints:
        """The only entry that may hold each hash: int64 [n, 4]."""
        places = np.take(self.directory, (hashes >> self._shift).view(np.int64)).astype(np.int64)
        found = np.take(self.entries, places, axis=0)
        behind = np.flatnonzero(found[:, _HASH].view(np.uint64) < hashes)
        while behind.size:  # As often as the fullest bucket has keys; the sentinel ends it.
            places[behind] += 1
            following = np.take(self.entries, places[behind], axis=0)
            found[behind] = following
            behind = behind[following[:, _HASH].view(np.uint64) < hashes[behind]]
        return found


class IntVocabulary:
    """Exact integer → id map.

    Args:
        keys: int64 [n], ascending, all different.
        ids: int64 [n].
    """

    def __init__(self, keys: Ints, ids: Ints) -> None:
        self.keys = keys
        self.ids = ids

    def __len__(self) -> int:
        return self.keys.size

    @classmethod
    def build(cls, keys: Sequence[int] | Ints, ids: Ints) -> IntVocabulary:
        """Map `keys[i]` to `ids[i]`.

        Raises:
            ValueError: a key occurs twice (named), or there are not as many ids as keys.
        """
        keys, ids = np.asarray(keys, np.int64), _ids(ids, len(keys))
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        if twice.size:
            first, second = order[twice[0]], order[twice[0] + 1]
            raise ValueError(f"key {keys[first]} occurs twice, at {first} and {second}")
        return cls(ordered, ids[order])

    def lookup(self, values: npt.NDArray[np.integer[Any]], default: int) -> Ints:
        """Ids of `values` (integers of any width and shape), `default` for those that are no key."""
        if not self.keys.size:
            return np.full(values.shape, default, np.int64)
        values = values.astype(np.int64, copy=False)
        places = np.minimum(np.searchsorted(self.keys, values), self.keys.size - 1)
        return np.where(self.keys[places] == values, self.ids[places], default)

    def save(self, path: Path) -> None:
        """Write to `path`, all or nothing; equal vocabularies give equal bytes."""
        write_arrays(path, _INTEGERS, {}, {"keys": self.keys, "ids": self.ids})

    @classmethod
    def load(cls, path: Path) -> IntVocabulary:
        """Map what `save` wrote.

        Raises:
            ValueError: the file is missing, is something else, or is not whole.
        """
        _, arrays = read_arrays(path, _INTEGERS)
        if arrays["keys"].shape != arrays["ids"].shape:
            raise ValueError(f"{path}: is damaged; rebuild the repository with `bireme build`")
        return cls(arrays["keys"], arrays["ids"])


def _ids(ids: Any, keys: int) -> Ints:
    array = np.asarray(ids, np.int64)
    if array.shape != (keys,):
        raise ValueError(f"{keys} keys need as many ids, not an array of shape {array.shape}")
    return array


def merge(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Several vocabularies as the parts 0, 1, … of one, so that one pass looks up in all of them."""
    keys = [vocabulary.keys() for vocabulary in vocabularies]
    ids = [vocabulary.entries[:-1, _ID] for vocabulary in vocabularies]
    parts = np.repeat(np.arange(len(keys)), [len(part) for part in keys])
    return Vocabulary.build(list(itertools.chain(*keys)), np.concatenate(ids), parts)


def _hash(strings: FlatStrings, coefficients: Words, parts: Ints | None = None) -> Words:
    """Σ coefficient · scrambled word, modulo 2^64: uint64 [n]. Its top bits are the good ones.

    Every word has a coefficient of its own and so has the length: words that swap places, or zero bytes at
    the end, change the sum.
    """
    hashes: Words = strings.lengths.astype(np.uint64) * coefficients[0]
    for rows, first, words in strings.blocks():
        words *= _SCRAMBLE
        words ^= words >> _HALF  # A difference in a word's last bytes must reach low bits, else it is lost.
        hashes[rows] += words @ coefficients[1 + first : 1 + first + words.shape[1]]
    if parts is not None:
        hashes ^= parts.astype(np.uint64) * _SCRAMBLE  # odd: every part gets a pattern of its own
    return hashes


def _coefficients(seed: int, longest: int) -> Words:
    """Odd pseudo-random multipliers for strings of up to `longest` bytes (SplitMix64 from `seed`)."""
    count = 1 + -(-max(longest, 0) // 8)
    state = np.arange(1, count + 1, dtype=np.uint64) + np.array([seed << 32], np.uint64)
    state *= np.uint64(0x9E3779B97F4A7C15)
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(multiplier)
    state ^= state >> np.uint64(31)
    return state | np.uint64(1)
