"""Embedding tables: raw arena files, mapped read-only so that all instances share one physical copy."""

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
    """Map every arena file: name → read-only array [rows of all its tables, width].

    Raises:
        ValueError: an arena is missing or not of the size that the plan says.
    """
    return {name: _open_arena(folder / name, tables) for name in {table.arena for table in tables}}


def split_arenas(arenas: Mapping[str, Array], tables: Sequence[Table]) -> dict[str, Array]:
    """Table name → its rows, a view into its arena."""
    return {t.name: arenas[t.arena][t.row_offset : t.row_offset + t.rows] for t in tables}


def _open_arena(path: Path, tables: Sequence[Table]) -> Array:
    mine = [table for table in tables if table.arena == path.name]
    rows = max(table.row_offset + table.rows for table in mine)
    dtype, width = np.dtype(mine[0].dtype), mine[0].width
    wanted = rows * width * dtype.itemsize
    found = path.stat().st_size if path.is_file() else None
    if found != wanted:
        state = "is missing" if found is None else f"has {found} bytes instead of {wanted}"
        raise ValueError(f"{path}: {state}; rebuild the repository with `bireme build`")
    # A plain array over the mapping: numpy's memmap class costs time at every slice and gather.
    return np.memmap(path, dtype=dtype, mode="r", shape=(rows, width)).view(np.ndarray)
