"""Many strings as three flat arrays, so that numpy works on all of them at once.

Everything downstream (hashing, vocabularies, UTF-8 verdicts) reads only `data`, `starts` and `lengths`.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PADDING", "FlatStrings"]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

# ASCII, so that broken UTF-8 in one string cannot swallow the next; a control character that feature values
# do not hold, so that its positions alone tell where the strings end.
_SEPARATOR = 0x1E
# The longest block that may be read from the last byte of the last string.
PADDING = 64
_JOINER = bytes([_SEPARATOR])
_TAIL = bytes(PADDING)
_MOST = PADDING // 8  # words in one block
_BLOCKS = [np.dtype((np.void, 8 * width)) for width in range(1, _MOST + 1)]
# _MASKS[width - 1][length]: `width` words whose first `length` bytes are ones.
_MASKS = [
    (np.arange(8 * width) < np.arange(8 * width + 1)[:, None]).astype(np.uint8).view("<u8") * np.uint64(0xFF)
    for width in range(1, _MOST + 1)
]


class FlatStrings:
    """n byte strings in one buffer.

    String `i` is `data[starts[i] : starts[i] + lengths[i]]`. Starts need not ascend and may repeat.

    Args:
        data: uint8 [bytes], contiguous; an ASCII byte before and after every string, and at least `PADDING`
            readable bytes after the last one.
        starts: int64 [n], byte offsets into `data`.
        lengths: int64 [n], bytes.
    """

    __slots__ = ("data", "lengths", "starts")

    def __init__(self, data: Bytes, starts: Ints, lengths: Ints) -> None:
        self.data = data
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        return self.starts.size

    def __getitem__(self, index: int) -> bytes:
        start = int(self.starts[index])
        return self.data[start : start + int(self.lengths[index])].tobytes()

    @classmethod
    def from_objects(cls, values: npt.NDArray[np.object_]) -> FlatStrings:
        """Flatten an object array of bytes (text is encoded as UTF-8), in C order whatever its shape.

        Raises:
            TypeError: an element is neither bytes nor text; names its position.
        """
        return cls.from_list(values.ravel().tolist())

    @classmethod
    def from_list(cls, values: Sequence[bytes | str]) -> FlatStrings:
        """Flatten a list of bytes (text is encoded as UTF-8).

        Raises:
            TypeError: an element is neither bytes nor text; names its position.
        """
        items: list[Any] = [*values, _TAIL]
        try:
            joined = _JOINER.join(items)
        except TypeError:
            items = _encode(items)
            joined = _JOINER.join(items)
        data = np.frombuffer(joined, np.uint8)
        n = len(items) - 1
        ends = np.flatnonzero(data == _SEPARATOR)
        if ends.size != n:  # Some string holds the separator itself: ask every string for its length.
            lengths = np.fromiter(map(len, items), np.int64, n)
            ends = np.cumsum(lengths + 1) - 1
        starts = np.empty(n, np.int64)
        starts[:1] = 0
        np.add(ends[:-1], 1, out=starts[1:])
        return cls(data, starts, ends - starts)

    @classmethod
    def concat(cls, parts: Sequence[FlatStrings]) -> FlatStrings:
        """All strings of all parts, in order."""
        if not parts:
            return cls.from_list([])
        if len(parts) == 1:
            return parts[0]
        offsets = np.cumsum([0, *(part.data.size for part in parts)]).tolist()
        return cls(
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.starts + offset for part, offset in zip(parts, offsets, strict=False)]),
            np.concatenate([part.lengths for part in parts]),
        )

    def take(self, indices: npt.NDArray[np.integer[Any]] | slice) -> FlatStrings:
        """The strings at `indices`; the buffer is shared, not copied."""
        return FlatStrings(self.data, self.starts[indices], self.lengths[indices])

    def to_objects(self) -> npt.NDArray[np.object_]:
        """The strings as an object array of bytes [n]: slow, for code that takes nothing else."""
        result = np.empty(len(self), dtype=object)
        result[:] = [self[index] for index in range(len(self))]
        return result

    def words(self, offset: int | Ints) -> Words:
        """The little-endian word at byte `offset` (one for all, or one each) of every string: uint64 [n].

        Bytes past a string's end are whatever follows it.
        """
        return self.block(offset, 1)[:, 0]

    def block(self, offset: int | Ints, width: int) -> Words:
        """`width` (1..8) consecutive words from byte `offset` of every string: uint64 [n, width].

        One gather whatever the width. Bytes past a string's end are whatever follows it.

        Raises:
            IndexError: an offset reaches past the buffer.
        """
        count = self.data.size - 8 * width + 1
        # One window per byte: windows overlap and are unaligned, which numpy's fancy indexing allows.
        windows: npt.NDArray[np.void] = np.ndarray((count,), _BLOCKS[width - 1], self.data, strides=(1,))
        where = self.starts if isinstance(offset, int) and offset == 0 else self.starts + offset
        words: Words = windows[where].view("<u8").reshape(-1, width)
        return words

    def blocks(self) -> Iterator[tuple[slice | Ints, int, Words]]:
        """All words of all strings, zero past each string's end, up to eight words a step.

        Yields:
            Which strings these are (all, later the indices of those long enough), the index of their first
            word here, and the words, the caller's to change: uint64 [rows, width].
        """
        if not len(self):
            return
        shortest, longest = int(self.lengths.min()), int(self.lengths.max())
        rows: slice | Ints = slice(None)
        part = self
        for offset in range(0, longest, PADDING):
            if 0 < offset >= shortest:
                longer = np.flatnonzero(part.lengths > offset)
                part = part.take(longer)
                rows = longer if isinstance(rows, slice) else rows[longer]
            width = min(_MOST, (longest - offset + 7) // 8)
            words = part.block(offset, width)
            if shortest < offset + 8 * width:
                left = (self.lengths[:1] if shortest == longest else part.lengths) - offset
                words &= np.take(_MASKS[width - 1], np.minimum(left, 8 * width), axis=0)
            yield rows, offset // 8, words

    def equal(self, other: FlatStrings) -> npt.NDArray[np.bool_]:
        """Whether string `i` here and string `i` in `other` are the same bytes: bool [n]."""
        equal: npt.NDArray[np.bool_] = self.lengths == other.lengths
        if not equal.all():
            rows = np.flatnonzero(equal)
            equal[rows] = self.take(rows).equal(other.take(rows))
            return equal
        for (which, _, mine), (_, _, theirs) in zip(self.blocks(), other.blocks(), strict=True):
            differ = mine != theirs
            if differ.any():
                equal[which] &= ~differ.any(axis=1)
        return equal

    def invalid_utf8(self) -> Ints:
        """Indices, ascending, of the strings that are not valid UTF-8: int64 [k]."""
        if not self.data.size or self.data.max() < 0x80:
            return np.empty(0, np.int64)
        try:
            codecs.utf_8_decode(self.data, "strict", True)  # type: ignore[arg-type]
        except UnicodeDecodeError:
            broken = _broken_bytes(self.data)
            before = np.searchsorted(broken, self.starts)
            after = np.searchsorted(broken, self.starts + self.lengths)
            return np.flatnonzero(before != after)
        return np.empty(0, np.int64)


def _encode(items: Iterable[Any]) -> list[bytes]:
    encoded = []
    for index, item in enumerate(items):
        if isinstance(item, str):
            # A lone surrogate must not stop the batch here: it becomes invalid UTF-8 and is judged as such.
            encoded.append(item.encode("utf-8", "surrogatepass"))
        elif isinstance(item, bytes):
            encoded.append(item)
        else:
            raise TypeError(f"string {index} is a {type(item).__name__}; send bytes or text")
    return encoded


def _broken_bytes(data: Bytes) -> Ints:
    """Ascending positions of the bytes that no UTF-8 character owns."""
    # Every such byte becomes one code point U+DC80..U+DCFF, which strict UTF-8 cannot spell otherwise.
    text, _ = codecs.utf_8_decode(data, "surrogateescape", True)  # type: ignore[arg-type]
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    escaped = (points >= 0xDC80) & (points <= 0xDCFF)
    sizes = np.ones(points.size, np.int64)
    for smallest in (0x80, 0x800, 0x10000):
        sizes += points >= smallest
    sizes[escaped] = 1
    positions: Ints = (np.cumsum(sizes) - sizes)[escaped]
    return positions
