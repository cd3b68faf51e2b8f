"""Making strings out of strings, all at once: joining, cutting, changing the case of ASCII letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .farmhash import farmhash64
from .strings import PADDING, FlatStrings

__all__ = [
    "SPACE",
    "change_case",
    "characters",
    "each",
    "join",
    "part_between",
    "slice_characters",
    "strip",
    "substr",
    "utf8_length",
]

Ints = npt.NDArray[np.int64]
#: What TensorFlow and C call white space.
SPACE = b" \t\n\v\f\r"
_IS_SPACE = np.isin(np.arange(256), np.frombuffer(SPACE, np.uint8))
_LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)
_UPPER = np.frombuffer(bytes(range(256)).upper(), np.uint8)
_PASSES = 8  # Stripping goes byte by byte for so long; rows with more white space are then done one by one.


def change_case(strings: FlatStrings, upper: bool) -> FlatStrings:
    """ASCII letters in the other case, all other bytes as they are."""
    data = np.take(_UPPER if upper else _LOWER, strings.data)
    return FlatStrings(data, strings.starts, strings.lengths)


def join(parts: Sequence[FlatStrings]) -> FlatStrings:
    """Row by row, the strings of all parts one after the other; every part has as many rows."""
    flat = FlatStrings.concat(parts)
    rows = len(parts[0])
    starts = flat.starts.reshape(len(parts), rows).T.reshape(-1)
    lengths = flat.lengths.reshape(len(parts), rows).T.reshape(-1)
    return _packed(flat.data, starts, lengths, lengths.reshape(rows, len(parts)).sum(axis=1))


def _packed(data: Any, starts: Ints, lengths: Ints, sizes: Ints) -> FlatStrings:
    """Pieces copied one behind the other; string `i` takes the next `sizes[i]` bytes."""
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    copied = np.zeros(total + PADDING + 1, np.uint8)
    # A byte before the first string: ASCII, as `FlatStrings` promises.
    where = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
    copied[1 : total + 1] = np.take(data, where)
    return FlatStrings(copied, np.cumsum(sizes) - sizes + 1, sizes)


def strip(strings: FlatStrings) -> FlatStrings:
    """Without white space at both ends."""
    starts, ends = strings.starts.copy(), strings.starts + strings.lengths
    for shift in (1, -1):
        rows = np.flatnonzero(ends > starts)
        for _ in range(_PASSES):
            at = starts[rows] if shift == 1 else ends[rows] - 1
            rows = rows[_IS_SPACE[strings.data[at]]]
            if not rows.size:
                break
            (starts if shift == 1 else ends)[rows] += shift
            rows = rows[ends[rows] > starts[rows]]
        for row in rows.tolist():
            text = strings.data[starts[row] : ends[row]].tobytes()
            kept = len(text.lstrip(SPACE) if shift == 1 else text.rstrip(SPACE))
            if shift == 1:
                starts[row] = ends[row] - kept
            else:
                ends[row] = starts[row] + kept
    return FlatStrings(strings.data, starts, ends - starts)


def substr(strings: FlatStrings, position: int, length: int) -> tuple[FlatStrings, Ints]:
    """Bytes [position, position + length) of every string, `position` < 0 counted from the end.

    Returns:
        The strings, and the indices of those that `position` lies outside of.
    """
    first = strings.lengths + position if position < 0 else np.full(len(strings), position, np.int64)
    outside = np.flatnonzero((first < 0) | (first > strings.lengths))
    first = np.clip(first, 0, strings.lengths)
    lengths = np.minimum(length, strings.lengths - first)
    return FlatStrings(strings.data, strings.starts + first, lengths), outside


def characters(strings: FlatStrings) -> tuple[Ints, Ints]:
    """Where in `data` UTF-8 characters begin; for each string, the first such place above its start.

    TensorFlow takes a string's first byte as the beginning of a character, whatever it is.
    """
    heads = np.flatnonzero((strings.data & 0xC0) != 0x80)
    return heads, np.searchsorted(heads, strings.starts + 1)


def slice_characters(strings: FlatStrings, position: int, length: int) -> tuple[FlatStrings, Ints]:
    """`substr` in UTF-8 characters; `position` and `length` ≥ 0."""
    heads, first = characters(strings)
    ends = strings.starts + strings.lengths
    count = np.where(strings.lengths > 0, np.searchsorted(heads, ends) - first + 1, 0)

    def place(number: Ints) -> Ints:
        """Where character `number` of every string begins; its end, past the last one."""
        at = np.append(heads, 0)[np.minimum(first + number - 1, heads.size)]
        return np.where(number <= 0, strings.starts, np.where(number >= count, ends, at))

    outside = np.flatnonzero(position > count)
    begin = place(np.minimum(position, count))
    end = place(np.minimum(position + length, count))
    return FlatStrings(strings.data, begin, end - begin), outside


def utf8_length(strings: FlatStrings) -> Ints:
    """Bytes that are no continuation of a UTF-8 character: int64 [n]."""
    heads, _ = characters(strings)
    ends = np.searchsorted(heads, strings.starts + strings.lengths)
    return ends - np.searchsorted(heads, strings.starts)


def part_between(strings: FlatStrings, separator: int, index: int) -> tuple[FlatStrings, Ints]:
    """Part `index` of every string, between bytes `separator`.

    Returns:
        The parts, empty where there are too few; and the indices of these.
    """
    cuts = np.flatnonzero(strings.data == separator)
    ends = strings.starts + strings.lengths
    first, last = np.searchsorted(cuts, strings.starts), np.searchsorted(cuts, ends)
    cuts = np.append(cuts, 0)
    found = last - first  # separators; there is one part more
    begin = strings.starts if index == 0 else cuts[np.minimum(first + index - 1, cuts.size - 1)] + 1
    end = np.where(index < found, cuts[np.minimum(first + index, cuts.size - 1)], ends)
    missing = np.flatnonzero(index > found)
    begin, end = begin.copy(), end.copy()
    begin[missing] = end[missing] = strings.starts[missing]
    return FlatStrings(strings.data, begin, end - begin), missing


def each(strings: FlatStrings, function: Callable[[bytes], Any]) -> tuple[list[Any], Ints]:
    """`function` of every distinct string, and which of the results belongs to each string: int64 [n]."""
    hashes = farmhash64(strings)
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    if not strings.equal(strings.take(first[inverse])).all():  # two of one hash
        first = inverse = np.arange(len(strings))
    return [function(strings[int(row)]) for row in first], inverse
