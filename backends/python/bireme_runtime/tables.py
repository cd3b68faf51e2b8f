"""Embedding tables: raw arena files, mapped read-only so that all instances share one physical copy.

A table is stored as "float32", "float16" or "int8". An int8 row is one float32 `scale`, then `width` int8
`values`, then zeros up to a multiple of 4 bytes; it means scale · values. Scale and values lie together, so
that a row costs one access to memory, and only the rows that a request asks for are ever turned into numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .plan import Table

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Arena:
    """One arena file: the rows of all tables of one storage type and width, one after the other.

    Args:
        path: the file.
        dtype: storage type: "float32", "float16" or "int8".
        width: numbers of a row.
        rows: of all its tables.
        size: bytes.
    """

    path: Path
    dtype: str
    width: int
    rows: int
    size: int

    def over(self, content: Array) -> Array:
        """The file's content, uint8 [size or more], as read-only [rows, width], or [rows] of `int8_row`."""
        # A plain array over the mapping: numpy's memmap class costs time at every slice and gather.
        content = content.view(np.ndarray)[: self.size]
        if self.dtype == "int8":
            return content.view(int8_row(self.width))
        return content.view(self.dtype).reshape(self.rows, self.width)


def open_tables(folder: Path, tables: Sequence[Table]) -> dict[str, Array]:
    """Map every table.

    Args:
        folder: where the arena files lie.
        tables: the plan's tables.

    Returns:
        Table name → read-only array [rows, width].

    Raises:
        ValueError: an arena is missing or shorter than the plan says.
    """
    return split_arenas(open_arenas(folder, tables), tables)


def open_arenas(folder: Path, tables: Sequence[Table]) -> dict[str, Array]:
    """Map every arena file: name → read-only array [rows of all its tables, width], or [rows] of `int8_row`.

    Raises:
        ValueError: an arena is missing or not of the size that the plan says.
    """
    return {
        arena.path.name: arena.over(np.memmap(arena.path, np.uint8, mode="r"))
        for arena in describe_arenas(folder, tables)
    }


def describe_arenas(folder: Path, tables: Sequence[Table]) -> list[Arena]:
    """The arena files that the tables lie in, in the order of the tables.

    Raises:
        ValueError: an arena is missing or not of the size that the plan says.
    """
    names = dict.fromkeys(table.arena for table in tables)
    return [_describe(folder / name, [t for t in tables if t.arena == name]) for name in names]


def split_arenas(arenas: Mapping[str, Array], tables: Sequence[Table]) -> dict[str, Array]:
    """Table name → its rows, a view into its arena."""
    return {t.name: arenas[t.arena][t.row_offset : t.row_offset + t.rows] for t in tables}


def int8_row(width: int) -> np.dtype[Any]:
    """One row of an int8 table; see the module's text."""
    size = 4 + -(-width // 4) * 4
    names, formats = ["scale", "values"], [np.dtype("<f4"), np.dtype(("i1", (width,)))]
    row: np.dtype[Any] = np.dtype({"names": names, "formats": formats, "itemsize": size})
    return row


def row_bytes(table: Table) -> int:
    """Bytes of one row as it is stored."""
    if table.dtype == "int8":
        return int8_row(table.width).itemsize
    return table.width * np.dtype(table.dtype).itemsize


def take_rows(table: Array, ids: Array) -> Array:
    """Rows of a table or arena, as numbers.

    Args:
        table: as `open_arenas` and `split_arenas` give it.
        ids: int64, any shape, all in range.

    Returns:
        [*ids.shape, width]: float32, or float16 where that is the storage type.
    """
    # Ids are in range, so "clip" never clips; it spares numpy a buffered second check.
    rows = table.take(ids, axis=0, mode="clip")
    if table.dtype.names is None:
        return rows
    numbers: Array = rows["values"] * rows["scale"][..., None]
    return numbers


def _describe(path: Path, mine: Sequence[Table]) -> Arena:
    rows = max(table.row_offset + table.rows for table in mine)
    first = mine[0]
    arena = Arena(path, first.dtype, first.width, rows, rows * row_bytes(first))
    found = path.stat().st_size if path.is_file() else None
    if found != arena.size:
        state = "is missing" if found is None else f"has {found} bytes instead of {arena.size}"
        raise ValueError(f"{path}: {state}; rebuild the repository with `bireme build`")
    return arena
