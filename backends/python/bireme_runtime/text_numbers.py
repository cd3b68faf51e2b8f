"""Numbers as text and text as numbers, the way TensorFlow writes and reads them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .strings import PADDING, FlatStrings

__all__ = ["as_string", "parse_float", "parse_integer"]

Array = npt.NDArray[Any]
_POWERS = np.array([10**digit for digit in range(20)], np.uint64)
_INTEGER = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)[ \t\n\v\f\r]*")
_FLOAT = re.compile(rb"[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[ \t\n\v\f\r]*")
_BOUNDS = {"int32": 2**31, "int64": 2**63}


def as_string(values: Array, dtype: str, style: str) -> FlatStrings:
    """`AsString` of bool, integers or floats.

    Args:
        values: [n].
        dtype: what TensorFlow sees: "bool", an integer or a float type.
        style: C's format of one number, like "%d" or "%.3e"; not for bool.
    """
    if dtype == "bool":
        return FlatStrings.from_list([b"false", b"true"]).take(values.astype(np.int64))
    if style == "%d":
        return _decimal(values.astype(dtype).astype(np.int64))
    given = values.astype(dtype)
    if dtype.startswith("float"):
        # TensorFlow's threads take denormal numbers for zero.
        given = np.where(
            np.abs(given) < np.finfo(dtype).tiny, np.copysign(np.zeros_like(given), given), given
        )
        return FlatStrings.from_list([style % value for value in given.tolist()])
    distinct, inverse = np.unique(given, return_inverse=True)
    return FlatStrings.from_list([style % value for value in distinct.tolist()]).take(inverse)


def _decimal(values: npt.NDArray[np.int64]) -> FlatStrings:
    """Integers in decimal, digit by digit for all of them."""
    negative = np.less(values, 0)
    with np.errstate(over="ignore"):
        # The smallest int64 stays what it is, and is right as unsigned.
        rest = np.abs(values).view(np.uint64)
    lengths = np.searchsorted(_POWERS, rest, side="right")
    lengths = np.maximum(lengths, 1) + np.where(negative, 1, 0)
    ends = np.cumsum(lengths) + 1
    data = np.zeros(int(lengths.sum()) + 1 + PADDING, np.uint8)
    data[(ends - lengths)[negative]] = ord("-")
    places, ten = ends - 1, np.uint64(10)
    while rest.size:
        quotient = rest // ten
        data[places] = (rest - quotient * ten).astype(np.uint8) + ord("0")
        active = np.flatnonzero(quotient)
        rest, places = quotient[active], places[active] - 1
    return FlatStrings(data, ends - lengths, lengths.astype(np.int64))


def parse_integer(text: bytes, dtype: str) -> int | None:
    """`StringToNumber` into an integer type; None where TensorFlow raises an error."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    value = int(match[1])
    return value if -_BOUNDS[dtype] <= value < _BOUNDS[dtype] else None


def parse_float(text: bytes) -> np.float32 | None:
    """`StringToNumber` into FP32, correctly rounded; None for what is no finite decimal number."""
    match = _FLOAT.fullmatch(text)
    if match is None:
        return None
    double = float(match[1])
    with np.errstate(over="ignore"):
        value = np.float32(double)
    if not np.isfinite(value):
        return None
    # Rounded twice: wrong only if the double lies half way between two floats and the text does not.
    for neighbour in (np.nextafter(value, np.float32(-np.inf)), np.nextafter(value, np.float32(np.inf))):
        if np.isfinite(neighbour) and (float(neighbour) + float(value)) / 2 == double:
            exact = Fraction(match[1].decode())
            if abs(exact - Fraction(float(neighbour))) < abs(exact - Fraction(float(value))):
                return np.float32(neighbour)
    return value
