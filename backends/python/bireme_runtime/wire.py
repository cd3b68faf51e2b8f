"""Strings as they travel, kept as bytes: none of them becomes a Python object.

Triton's Python backend turns every string into an object before `execute` runs, in a Python loop. It looks
the function for that up in its utilities module at each call, so a model may put `Payload` in its place. No
document promises that; it was seen in 24.10 (server 2.51), which also checks every payload before. Where a
backend does not ask for the function, arrays of objects arrive as ever, and `join` takes those too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .strings import PADDING, FlatStrings

__all__ = ["PADDING", "Payload", "WireStrings", "install", "join", "padded", "payload_of"]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
_PREFIX = 4  # bytes of a length
_TAIL = np.zeros(PADDING, np.uint8)


class WireStrings(np.ndarray[Any, Any]):
    """Stands for a tensor of strings: its shape is the tensor's, its elements mean nothing.

    Args:
        payload: uint8 [bytes]: the strings in C order, each as its length (4 bytes, little-endian) and its
            bytes. A slice of the array would still have all of it, so there must be none.
    """

    payload: Bytes

    def __array_finalize__(self, other: Any) -> None:
        self.payload = getattr(other, "payload", None)  # type: ignore[assignment]


class Payload:
    """What a backend gets in place of a flat array of strings; all that it does with it is to reshape it.

    Args:
        payload: as in `WireStrings`. The server has checked that it is whole.
    """

    def __init__(self, payload: Bytes) -> None:
        self._payload = payload

    def reshape(self, shape: Sequence[int]) -> WireStrings:
        """The tensor."""
        tensor = np.empty(shape, np.bool_).view(WireStrings)
        tensor.payload = self._payload
        return tensor


def install(backend: Any) -> None:
    """Make a Python backend hand over `WireStrings`.

    Args:
        backend: the module `triton_python_backend_utils`.
    """
    if hasattr(backend, "deserialize_bytes_tensor"):
        backend.deserialize_bytes_tensor = Payload


def payload_of(tensor: npt.NDArray[Any]) -> Bytes:
    """An array of objects (bytes or text) as the payload in which it would have travelled.

    Raises:
        TypeError: an object is neither bytes nor text.
    """
    flat = FlatStrings.from_list(tensor.ravel().tolist())
    strings = [flat[index] for index in range(len(flat))]
    parts = [part for string in strings for part in (len(string).to_bytes(_PREFIX, "little"), string)]
    return np.frombuffer(b"".join(parts), np.uint8)


def padded(tensor: WireStrings, length: int, padding: bytes) -> WireStrings:
    """Sequences filled up with a string.

    Args:
        tensor: [..., at most `length`].
        length: what they have afterwards.
        padding: the string.
    """
    payload, have, rows = tensor.payload, tensor.shape[-1], int(np.prod(tensor.shape[:-1]))
    prefixes, _ = _find(np.concatenate([payload, _TAIL]), payload.size, tensor.size)
    ends = np.append(prefixes, payload.size)[have::have] if have else np.zeros(rows, np.int64)
    filler = np.frombuffer((len(padding).to_bytes(_PREFIX, "little") + padding) * (length - have), np.uint8)
    filled = np.insert(payload, np.repeat(ends, filler.size), np.tile(filler, rows))
    return Payload(filled).reshape((*tensor.shape[:-1], length))


def join(tensors: Sequence[npt.NDArray[Any]]) -> FlatStrings:
    """All strings of several tensors, in order.

    Args:
        tensors: arrays of objects (bytes or text), or `WireStrings`.

    Raises:
        TypeError: an object is neither bytes nor text.
    """
    parts: list[FlatStrings] = []
    for sent, group in itertools.groupby(tensors, lambda tensor: isinstance(tensor, WireStrings)):
        run = list(group)
        parts.append(_read(run) if sent else _flatten(run))  # type: ignore[arg-type]
    return FlatStrings.concat(parts)


def _flatten(tensors: Sequence[npt.NDArray[Any]]) -> FlatStrings:
    """Arrays of objects: the default of a feature that a request left out, or all if no payload came."""
    return FlatStrings.from_list([item for tensor in tensors for item in tensor.ravel().tolist()])


def _read(tensors: Sequence[WireStrings]) -> FlatStrings:
    data = np.concatenate([*(tensor.payload for tensor in tensors), _TAIL])
    prefixes, lengths = _find(data, data.size - PADDING, sum(tensor.size for tensor in tensors))
    if lengths.max(initial=0) >= 0x80:
        # Such a length is no ASCII text, and would look like broken UTF-8 beside the strings.
        data[(prefixes[:, None] + np.arange(_PREFIX)).reshape(-1)] = 0
    return FlatStrings(data, prefixes + _PREFIX, lengths)


def _find(data: Bytes, end: int, count: int) -> tuple[Ints, Ints]:
    """Where the length of each of `count` strings in `data[:end]` is, and the length."""
    prefixes = _likely(data, end)
    lengths = data[prefixes].astype(np.int64)
    following = prefixes + lengths + _PREFIX
    # They are the lengths and nothing else if each leads to the next, from the first byte to the end.
    if (
        prefixes.size == count
        and (following == np.append(prefixes, end)[1:]).all()
        and not prefixes[:1].any()
    ):
        return prefixes, lengths
    prefixes = _chain(data, end, count)
    return prefixes, np.diff(prefixes, append=end) - _PREFIX


def _likely(data: Bytes, end: int) -> Ints:
    """Where lengths are, unless strings are longer than 255 bytes or hold zero bytes beside each other.

    Then three zero bytes in a row are the upper bytes of a length, and four the length of an empty string.
    """
    zero = np.zeros(end + 2, np.bool_)
    np.equal(data[:end], 0, out=zero[1:-1])
    edges = np.flatnonzero(zero[1:] != zero[:-1])
    starts: Ints = edges[::2]
    sizes: Ints = edges[1::2] - starts
    if (sizes == 3).all():
        return starts - 1
    starts, sizes = starts[sizes >= 3], sizes[sizes >= 3]
    repeats = np.maximum(sizes // 4, 1)
    rank = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    places: Ints = np.repeat(np.where(sizes == 3, starts - 1, starts), repeats) + 4 * rank
    return places


def _chain(data: Bytes, end: int, count: int) -> Ints:
    """Where each length is, whatever the strings hold.

    From every place that could be a length follows a next one; the chain of `count` of them from the first
    byte is put together in log2(count) doublings.

    Raises:
        ValueError: the payload is not `count` whole strings.
    """
    size = max(end - _PREFIX + 1, 0)
    words: npt.NDArray[np.uint32] = np.ndarray((size,), "<u4", data, strides=(1,))
    # The top byte of a length is zero, unless a string of 16 MB is possible.
    places = np.flatnonzero(data[_PREFIX - 1 : end] == 0) if end < 1 << 24 else np.arange(size)
    following = places + _PREFIX + words[places].astype(np.int64)
    places = np.append(places, end)
    last, nowhere = places.size - 1, places.size  # both lead to themselves
    step = np.searchsorted(places, following)
    step[places[np.minimum(step, last)] != following] = nowhere
    step = np.append(step, [last, nowhere])
    places = np.append(places, -1)
    chain = np.zeros(1, np.int64)  # the first byte is a length: it is the first of `places`
    while chain.size <= count:
        chain = np.concatenate([chain, step[chain]])
        step = step[step]
    prefixes: Ints = places[chain[: count + 1]]
    if prefixes[-1] != end or prefixes[:1].any() or (np.diff(prefixes) < _PREFIX).any():
        raise ValueError(f"a payload of {end} bytes does not hold {count} strings")
    return prefixes[:-1]
