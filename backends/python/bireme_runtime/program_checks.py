"""What the C kernel takes the plan's word for: that nothing lies outside the outputs and the arenas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .plan import Embed, Plan
from .requests import Array
from .tables import row_bytes

__all__ = ["require_inside"]


def require_inside(plan: Plan, arenas: Mapping[str, Array]) -> None:
    """Refuse a damaged plan before it sends the kernel anywhere.

    Args:
        plan: the feature plan.
        arenas: arena file → [rows, width].

    Raises:
        ValueError: a step or table that lies outside; named.
    """
    widths: dict[str, int] = {"user": plan.user_width, "item": plan.item_width}
    rows = {table.name: table.rows for table in plan.tables}
    for table in plan.tables:
        last = (table.row_offset + table.rows) * row_bytes(table)
        if min(table.row_offset, table.rows) < 0 or last > arenas[table.arena].nbytes:
            raise _damaged(f"table '{table.name}' lies outside its arena")
    for step in plan.steps:
        block: Any = step
        if hasattr(block, "offset") and not 0 <= block.offset <= widths[block.side] - block.width:
            raise _damaged(f"step '{step.name}' writes outside its output")
        if isinstance(step, Embed) and step.fill is not None and not 0 <= step.fill < rows[step.table]:
            raise _damaged(f"step '{step.name}' fills up with row {step.fill} of {rows[step.table]}")


def _damaged(fault: str) -> ValueError:
    return ValueError(f"the feature plan is damaged: {fault}; rebuild the repository with `bireme build`")
