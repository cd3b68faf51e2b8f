"""Server and clients on cores of their own, as if the clients were other machines."""

from __future__ import annotations

import os
from collections.abc import Callable

from bireme.errors import SpecError

__all__ = ["start_apart"]


def start_apart(start: Callable[[], None], cores: int) -> None:
    """Call `start`, whose processes stay on the first `cores` cores; whatever starts later has the others.

    Args:
        start: starts the server.
        cores: how many; 0: all for everybody.

    Raises:
        SpecError: none would be left.
    """
    if not cores:
        start()
        return
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) <= cores:
        message = f"leaves no core for the clients: there are {len(usable)}"
        raise SpecError(f"--cores {cores}", message, "name fewer, or leave it out")
    os.sched_setaffinity(0, usable[:cores])
    try:
        start()
    finally:
        os.sched_setaffinity(0, usable[cores:])
