"""Where the embedding tables are: the interface that the feature plan reads them through.

The plan's `store` names the kind. "local" maps the arena files that lie beside the plan; a kind is added by
one entry in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from .local_store import LocalStore
from .plan import Plan
from .tables import Array

__all__ = ["KINDS", "TableStore", "open_store"]


class TableStore(Protocol):
    """Tables that are open, for one process."""

    @property
    def arenas(self) -> Mapping[str, Array]:
        """Arena name → read-only array [rows of all its tables, width], or [rows] of `tables.int8_row`.

        Row 0 begins at a multiple of 64 bytes. `tables.split_arenas` finds a plan's tables in them.
        """

    @property
    def notes(self) -> tuple[str, ...]:
        """What the log should say of how they were opened, a line each."""


#: Kind → opens the tables of a plan: (the plan's folder, the plan, policy of huge pages).
KINDS: Mapping[str, Callable[[Path, Plan, str], TableStore]] = {"local": LocalStore.open}


def open_store(folder: Path, plan: Plan, huge_pages: str = "off") -> TableStore:
    """Open the tables of a plan.

    Args:
        folder: where the plan lies.
        plan: the plan; its `store` says which kind.
        huge_pages: one of `local_store.POLICIES`.

    Raises:
        ValueError: an unknown kind or policy, or tables that are not as the plan says.
    """
    kind = KINDS.get(plan.store)
    if kind is None:
        known = ", ".join(KINDS)
        raise ValueError(
            f"{folder / 'plan.json'}: the table store {plan.store!r} is unknown to this runtime, which has "
            f"{known}; rebuild the repository with `bireme build`"
        )
    return kind(folder, plan, huge_pages)
