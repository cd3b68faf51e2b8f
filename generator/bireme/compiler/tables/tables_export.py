"""Embedding tables, straight from the model's variables into arena files: in chunks, never as a whole.

A variable is read in pieces of some megabytes, so that an export needs memory for a few of them beside the
loaded model, whatever the table's size, and no protobuf with its 2 GB limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.rules.lower_pools import OneHotRows
from bireme.compiler.rules.partitioned import Shards
from bireme.compiler.tables.mapped import let_go
from bireme.compiler.tables.storage import encode
from bireme_runtime.plan import Table

__all__ = ["row_chunks", "write_arena"]

Array = np.ndarray[Any, Any]
#: Bytes of a piece: large against what reading one costs, small against any table that matters.
CHUNK = 32 << 20
#: Bytes after which the pages of a parked variable go back that were read for them.
_LET_GO = 256 << 20


def write_arena(tables: Sequence[Table], variables: Mapping[str, Any], path: Path) -> None:
    """Write one arena file.

    Args:
        tables: the arena's tables, in the order of their `row_offset`.
        variables: table name → tf.Variable [rows, width], or several that are one table.
        path: the file.
    """
    read = 0
    with path.open("wb") as file:
        for table in tables:
            for rows in row_chunks(variables[table.name]):
                file.write(np.ascontiguousarray(encode(rows, table)).view(np.uint8).data)
                read += rows.nbytes
                if read >= _LET_GO:
                    let_go(path.parent)
                    read = 0
    let_go(path.parent)


def row_chunks(variable: Any, size: int | None = None) -> Iterator[Array]:
    """A variable's rows, in order, in pieces of about `size` bytes (`CHUNK` by default).

    `Variable.numpy()` would copy the whole table. Its value shares the variable's buffer, and `numpy()` on a
    slice copies the slice. Gathering rows would do as well, but after it TensorFlow copies the table whenever
    the model reads it.
    """
    rows = int(variable.shape[0])
    width = int(np.prod(variable.shape[1:], dtype=np.int64)) * variable.dtype.size
    step = max(1, (CHUNK if size is None else size) // max(1, width))
    value = None if isinstance(variable, (Shards, OneHotRows)) else variable.read_value()
    for first in range(0, rows, step):
        last = min(first + step, rows)
        yield variable.read(first, last) if value is None else value[first:last].numpy()
