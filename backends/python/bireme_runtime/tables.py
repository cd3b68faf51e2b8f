"""Embedding tables: raw arena files, mapped read-only so that all instances share one physical copy.

A table is stored as "float32", "float16" or "int8". An int8 row is one float32 `scale`, then `width` int8
`values`, then zeros up to a multiple of 4 bytes; it means scale · values. Scale and values lie together, so
that a row costs one access to memory, and only the rows that a request asks for are ever turned into numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .plan import Table

Array = np.ndarray[Any, Any]


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
    return {name: _open_arena(folder / name, tables) for name in {table.arena for table in tables}}


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


def _open_arena(path: Path, tables: Sequence[Table]) -> Array:
    mine = [table for table in tables if table.arena == path.name]
    rows = max(table.row_offset + table.rows for table in mine)
    first = mine[0]
    coded = first.dtype == "int8"
    dtype = int8_row(first.width) if coded else np.dtype(first.dtype)
    wanted = rows * row_bytes(first)
    found = path.stat().st_size if path.is_file() else None
    if found != wanted:
        state = "is missing" if found is None else f"has {found} bytes instead of {wanted}"
        raise ValueError(f"{path}: {state}; rebuild the repository with `bireme build`")
    # A plain array over the mapping: numpy's memmap class costs time at every slice and gather.
    return np.memmap(path, dtype=dtype, mode="r", shape=(rows,) if coded else (rows, first.width)).view(
        np.ndarray
    )
