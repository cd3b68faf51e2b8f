"""A request's tensors as bytes, in the layout that both of Triton's protocols take, without numpy."""

from __future__ import annotations

import array
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bireme.errors import ClientError

__all__ = ["Tensor", "count_scores", "decode", "encode"]

# Feature dtype → Triton's name for it and the array module's letter; strings have no letter.
_KINDS = {
    "string": ("BYTES", ""),
    "int32": ("INT32", "i"),
    "int64": ("INT64", "q"),
    "float32": ("FP32", "f"),
    "float64": ("FP64", "d"),
    "bool": ("BOOL", "b"),
}
_OUTPUTS = {"FP16": "e", "FP32": "f", "FP64": "d"}


@dataclass(frozen=True)
class Tensor:
    """One input: name, Triton's dtype, shape with the users first, row-major little-endian bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def encode(features: Sequence[Mapping[str, Any]], request: Mapping[str, Mapping[str, Any]]) -> list[Tensor]:
    """The tensors of a request of one user.

    Args:
        features: as the ensemble describes them: name, side ("user" or "item"), dtype.
        request: {"user": {feature: value or list}, "items": {feature: list of N}}; others stay out.

    Returns:
        User features as [1, 1] or [1, L], item features as [1, N] or [1, N, L].

    Raises:
        ClientError: a value that is not of its feature's dtype, or an unknown feature, by name.
    """
    known = {(feature["side"], feature["name"]) for feature in features}
    for part, side in (("user", "user"), ("items", "item")):
        for name in request[part]:
            if (side, name) not in known:
                message = f"is not one of the {side} features that the served model takes"
                raise ClientError(f"feature '{name}'", message, "is the example of another build?")
    tensors = []
    for feature in features:
        given = request["user" if feature["side"] == "user" else "items"]
        if feature["name"] in given:
            tensors.append(_tensor(feature["name"], feature["dtype"], given[feature["name"]]))
    return tensors


def count_scores(request: Mapping[str, Mapping[str, Any]]) -> int:
    """N: the length of the first item feature; 0: there is none."""
    return next((len(value) for value in request["items"].values() if isinstance(value, list)), 0)


def decode(dtype: str, data: bytes) -> list[float] | None:
    """The numbers of an output; None if they are no floating-point ones."""
    letter = _OUTPUTS.get(dtype)
    if letter is None:
        return None
    size = struct.calcsize(letter)
    return list(struct.unpack(f"<{len(data) // size}{letter}", data))


def _tensor(name: str, dtype: str, value: Any) -> Tensor:
    shape = (1, *_shape(value)) if isinstance(value, list) else (1, 1)
    flat = list(_flat(value))
    length = 1
    for size in shape:
        length *= size
    kind, letter = _KINDS[dtype]
    try:
        if length != len(flat):
            raise ValueError("its lists are of unequal length")
        data = _packed(flat, letter)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ClientError(f"feature '{name}'", f"does not hold {dtype} values: {error}") from None
    return Tensor(name, kind, shape, data)


def _packed(flat: list[Any], letter: str) -> bytes:
    if not letter:
        texts = [text.encode() for text in flat]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    packed = array.array(letter, flat)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return (len(value), *(_shape(value[0]) if value else ()))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for part in value:
            yield from _flat(part)
    else:
        yield value
