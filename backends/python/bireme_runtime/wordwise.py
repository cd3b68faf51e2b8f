"""Hashes that eat strings eight bytes at a time: all strings side by side, the long ones on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .strings import FlatStrings

__all__ = ["Words", "fold_words"]

Words = npt.NDArray[np.uint64]
_TAILS = (np.uint64(1) << np.arange(0, 64, 8, dtype=np.uint64)) - np.uint64(1)  # masks of 0 to 7 bytes
_FEW = 2  # From here on numpy's scalars, one string at a time, cost less than its arrays.


def fold_words(strings: FlatStrings, state: Words, update: Callable[..., Any]) -> Words:
    """Fold all whole words of every string into its state.

    Args:
        strings: n strings.
        state: uint64 [k, n], changed in place.
        update: `update(words, *state)` → the k new states; of arrays [m] or of scalars.

    Returns:
        What is left of each string, at most seven bytes, zero above them: uint64 [n].
    """
    counts = strings.lengths >> 3
    order = np.argsort(-counts, kind="stable")
    ordered, descending = strings.take(order), -counts[order]
    folded = state[:, order]
    active, step = int(np.searchsorted(descending, 0)), 0
    while active > _FEW:
        words = ordered.take(slice(active)).words(8 * step)
        folded[:, :active] = update(words, *folded[:, :active])
        step += 1
        active = int(np.searchsorted(descending, -step))
    for row in range(active):
        one = tuple(folded[:, row])
        with np.errstate(over="ignore"):  # Words wrap by design; numpy warns of it for scalars only.
            for word in _words_of(ordered, row, step, -int(descending[row])):
                one = update(word, *one)
        folded[:, row] = one
    state[:, order] = folded
    rest: Words = strings.words(counts << 3) & _TAILS[strings.lengths & 7]
    return rest


def _words_of(strings: FlatStrings, row: int, first: int, last: int) -> list[np.uint64]:
    offset = int(strings.starts[row]) + 8 * first
    return list(np.ndarray((last - first,), "<u8", strings.data, offset))
