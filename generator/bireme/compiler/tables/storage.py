"""How embedding tables are stored: as they are, in half precision, or as bytes with a scale for each row.

Applied after the compiled model is known to be exact with its tables as they are; what the storage changes is
then measured on its own, and gated (`storage_check.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from bireme.errors import CompileError, SpecError
from bireme_runtime.plan import Table
from bireme_runtime.tables import int8_row

__all__ = ["assign_storage", "encode"]

Array = np.ndarray[Any, Any]


def assign_storage(tables: Sequence[Table], storage: str | Mapping[str, str]) -> tuple[Table, ...]:
    """The tables with their storage type, laid out in one arena file for each type and width.

    Args:
        tables: the model's tables, in FP32.
        storage: a type for all, or pattern of a table's name → type; the first pattern that fits counts, and
            tables that fit none stay as they are.

    Raises:
        SpecError: a pattern fits no table.
    """
    rules = {"*": storage} if isinstance(storage, str) else storage
    for pattern in rules:
        if tables and not any(fnmatchcase(table.name, pattern) for table in tables):
            names = ", ".join(table.name for table in tables)
            raise SpecError(f"storage: '{pattern}'", "fits no embedding table", f"the tables are: {names}")
    ends: dict[str, int] = {}
    stored = []
    for table in tables:
        kinds = (kind for pattern, kind in rules.items() if fnmatchcase(table.name, pattern))
        dtype = next(kinds, "float32")
        arena = f"arena_{dtype}_w{table.width}.bin"
        first = ends.get(arena, 0)
        ends[arena] = first + table.rows
        stored.append(dataclasses.replace(table, dtype=dtype, arena=arena, row_offset=first))
    return tuple(stored)


def encode(rows: Array, table: Table) -> Array:
    """FP32 rows in their table's storage type.

    Args:
        rows: [n, width].
        table: says the type, and its name in errors.

    Raises:
        CompileError: a value has no place in the type: above 65504 in float16, NaN or infinite in int8.
    """
    if table.dtype == "float16":
        with np.errstate(over="ignore"):
            half = rows.astype(np.float16)
        if (np.isinf(half) & np.isfinite(rows)).any():
            raise _unstorable(table, f"holds {np.abs(rows).max():g}, beyond the 65504 of float16")
        return half
    if table.dtype == "int8":
        if not np.isfinite(rows).all():
            raise _unstorable(table, "holds a value that is not finite, which int8 cannot")
        coded = np.zeros(len(rows), dtype=int8_row(table.width))
        scale = np.abs(rows).max(axis=1) / np.float32(127)
        # A row of denormal numbers has no scale that a division survives; nor has it anything to say.
        scale[scale < np.finfo(np.float32).tiny] = 0
        coded["scale"] = scale
        coded["values"] = np.rint(rows / np.where(scale > 0, scale, 1)[:, None])
        return coded
    return rows


def _unstorable(table: Table, message: str) -> CompileError:
    hint = f'store it as it is: `storage: {{"{table.name}": float32, …}}` in the spec'
    return CompileError(f"embedding table '{table.name}'", message, hint)
