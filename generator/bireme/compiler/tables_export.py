"""Embedding tables, straight from the model's variables into arena files: in chunks, never as a whole.

A variable is read in pieces of some megabytes, so that an export needs memory for a few of them beside the
loaded model, whatever the table's size, and no protobuf with its 2 GB limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.graph import tf
from bireme.compiler.partitioned import Shards
from bireme_runtime.plan import Table

__all__ = ["row_chunks", "write_arena"]

Array = np.ndarray[Any, Any]
#: Bytes of a piece: large against what reading one costs, small against any table that matters.
CHUNK = 32 << 20


def write_arena(tables: Sequence[Table], variables: Mapping[str, Any], path: Path) -> None:
    """Write one arena file.

    Args:
        tables: the arena's tables, in the order of their `row_offset`.
        variables: table name → tf.Variable [rows, width], or several that are one table.
        path: the file.
    """
    with path.open("wb") as file:
        for table in tables:
            for rows in row_chunks(variables[table.name]):
                file.write(np.ascontiguousarray(rows).data)


def row_chunks(variable: Any, size: int | None = None) -> Iterator[Array]:
    """A variable's rows, in order, in pieces of about `size` bytes (`CHUNK` by default).

    `Variable.numpy()` would copy the whole table, and so does reading a variable that was ever written in
    parts (TensorFlow then copies on read); gathering copies the wanted rows only.
    """
    rows = int(variable.shape[0])
    width = int(np.prod(variable.shape[1:], dtype=np.int64)) * variable.dtype.size
    step = max(1, (CHUNK if size is None else size) // max(1, width))
    for first in range(0, rows, step):
        last = min(first + step, rows)
        if isinstance(variable, Shards):
            yield variable.read(first, last)
        else:
            yield tf.gather(variable, tf.range(first, last, dtype=tf.int64)).numpy()
