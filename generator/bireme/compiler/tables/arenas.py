"""Where each embedding table of a plan lies: one arena file for each width, tables end to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bireme.compiler.graph import tf
from bireme.compiler.rules.values import Rows
from bireme.errors import CompileError
from bireme_runtime import plan as p

__all__ = ["Arenas"]


class Arenas:
    """The tables that a plan's steps read, in the order in which they are first read.

    Args:
        variable: gives the variable that `Rows.variable` names, or what stands for one.
    """

    def __init__(self, variable: Callable[[str], Any]) -> None:
        self._variable = variable
        self._tables: dict[str, p.Table] = {}
        self._ends: dict[str, int] = {}

    @property
    def tables(self) -> tuple[p.Table, ...]:
        """The plan's tables."""
        return tuple(self._tables.values())

    @property
    def variables(self) -> dict[str, Any]:
        """Table → its variable."""
        return {table.name: self._variable(name) for name, table in self._tables.items()}

    def table(self, rows: Rows) -> str:
        """The name of the table that rows come from; it gets its place when it is first asked for.

        Raises:
            CompileError: it is empty, or holds no float32.
        """
        if rows.variable not in self._tables:
            self._tables[rows.variable] = self._place(rows)
        return self._tables[rows.variable].name

    def _place(self, rows: Rows) -> p.Table:
        variable = self._variable(rows.variable)
        name = variable.name.removesuffix(":0")
        if variable.dtype != tf.float32:
            raise CompileError(
                f"embedding table '{name}'",
                f"holds {variable.dtype.name}; this version serves float32 tables",
                "cast it before exporting",
            )
        if 0 in variable.shape:
            raise CompileError(
                f"embedding table '{name}'",
                f"is empty: shape {variable.shape}",
                "leave it out of the model",
            )
        taken = {table.name for table in self._tables.values()}
        while name in taken:
            name = f"{name}.{len(taken)}"
        arena = f"arena_float32_w{rows.width}.bin"
        first, count = self._ends.get(arena, 0), int(variable.shape[0])
        self._ends[arena] = first + count
        return p.Table(name, arena, "float32", rows.width, first, count)
