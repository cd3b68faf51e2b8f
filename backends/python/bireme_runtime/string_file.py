"""A list of strings in one mapped file: the values of a lookup table whose values are strings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .arrays import read_arrays, write_arrays
from .strings import FlatStrings

__all__ = ["load_strings", "save_strings"]

_KIND = "strings"


def save_strings(path: Path, strings: Sequence[bytes]) -> None:
    """Write to `path`, all or nothing; equal strings give equal bytes."""
    flat = FlatStrings.from_list(strings)
    write_arrays(path, _KIND, {}, {"data": flat.data, "starts": flat.starts, "lengths": flat.lengths})


def load_strings(path: Path) -> FlatStrings:
    """Map what `save_strings` wrote.

    Raises:
        ValueError: the file is missing, is something else, or is not whole.
    """
    _, arrays = read_arrays(path, _KIND)
    return FlatStrings(arrays["data"], arrays["starts"], arrays["lengths"])
