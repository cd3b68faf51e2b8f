"""The functions that `text` and `measure` steps name: strings → strings, and strings → integers.

A function takes the strings (integers and others for `as_string`) and the step's parameters. It raises
`Unfit` where TensorFlow raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from . import text_bytes as b
from .strings import FlatStrings
from .text_numbers import as_string, parse_integer
from .text_steps import to_bytes

__all__ = ["MEASURES", "TEXTS", "Unfit"]

Ints = npt.NDArray[np.int64]


class Unfit(Exception):  # noqa: N818 - becomes one error a request
    """Some strings are not what the function takes.

    Args:
        rows: their indices, ascending.
        what: the rest of a sentence that begins with "the value".
    """

    def __init__(self, rows: Ints, what: str) -> None:
        super().__init__(what)
        self.rows = rows
        self.what = what


def _substr(strings: FlatStrings, position: int, length: int, unit: str) -> FlatStrings:
    cut = b.slice_characters if unit == "UTF8_CHAR" else b.substr
    result, outside = cut(strings, position, length)
    if outside.size:
        raise Unfit(outside, f"is too short: the model takes {length} from position {position}")
    return result


def _part(
    strings: FlatStrings, separator: str, most: int, index: int, default: str, _open: bool = False
) -> FlatStrings:
    """Part `index` of `StringSplitV2`, or `default`; `most` splits (-1: all), "" splits at white space.

    `_open`: the original takes a string without this part only beside strings that have it. It changes
    nothing here; made-up requests have regard to it.
    """
    cut = to_bytes(separator)
    if len(cut) == 1 and most <= 0:
        found, missing = b.part_between(strings, cut[0], index)
    else:
        parts, inverse = b.each(strings, lambda text: _split(text, cut, most))
        missing = np.flatnonzero(np.array([len(part) <= index for part in parts], bool)[inverse])
        picked = [part[index] if index < len(part) else b"" for part in parts]
        found = FlatStrings.from_list(picked).take(inverse)
    if missing.size and default:
        both = FlatStrings.concat([found, FlatStrings.from_list([to_bytes(default)])])
        places = np.arange(len(found))
        places[missing] = len(found)
        return both.take(places)
    return found


def _split(text: bytes, separator: bytes, most: int) -> list[bytes]:
    if separator:
        return text.split(separator, most if most > 0 else -1)
    if most <= 0:
        return text.split()
    parts = text.lstrip(b.SPACE).split(None, most)
    # TensorFlow keeps an empty rest when it stops after `most` parts.
    return [*parts, b""] if len(parts) == most else parts


def _replace(strings: FlatStrings, pattern: str, rewrite: str, everywhere: bool) -> FlatStrings:
    compiled, new = re.compile(to_bytes(pattern)), to_bytes(rewrite)
    texts, inverse = b.each(strings, lambda text: compiled.sub(new, text, 0 if everywhere else 1))
    return FlatStrings.from_list(texts).take(inverse)


def _full_match(strings: FlatStrings, pattern: str) -> Ints:
    compiled = re.compile(to_bytes(pattern))
    found, inverse = b.each(strings, lambda text: compiled.fullmatch(text) is not None)
    return np.array(found, np.int64)[inverse]


def _equals(strings: FlatStrings, constant: str) -> Ints:
    """1 where the string is the constant."""
    same = FlatStrings.from_list([to_bytes(constant)])
    return strings.equal(same.take(np.zeros(len(strings), np.int64))).astype(np.int64)


def _integer(strings: FlatStrings, dtype: str) -> Ints:
    numbers, inverse = b.each(strings, lambda text: parse_integer(text, dtype))
    bad = np.flatnonzero(np.array([number is None for number in numbers], bool)[inverse])
    if bad.size:
        raise Unfit(bad, f"is no {dtype}")
    return np.array(numbers, np.int64)[inverse]


TEXTS: dict[str, Callable[..., FlatStrings]] = {
    "lower": lambda strings: b.change_case(strings, upper=False),
    "upper": lambda strings: b.change_case(strings, upper=True),
    "strip": b.strip,
    "substr": _substr,
    "part": _part,
    "replace": _replace,
    "as_string": as_string,
}
MEASURES: dict[str, Callable[..., Ints]] = {
    "length": lambda strings: strings.lengths.copy(),
    "utf8_length": b.utf8_length,
    "equals": _equals,
    "full_match": _full_match,
    "integer": _integer,
}
