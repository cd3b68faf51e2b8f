"""Memory that is no longer needed goes back at once: beside gigabytes of tables, copies of a graph add up.

Python collects cyclic garbage by the number of objects, not by their size, and only when a quarter more exist
than last time; TensorFlow alone has a million. The C library keeps what was freed for later.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator

__all__ = ["frugal", "give_back"]


@contextlib.contextmanager
def frugal() -> Iterator[None]:
    """Within, what existed before is never looked at for garbage, which makes collecting the rest cheap."""
    gc.collect()
    gc.freeze()
    gc.collect()  # counts what is left over: next to nothing
    try:
        yield
    finally:
        gc.unfreeze()


def give_back() -> None:
    """Collect garbage and return free memory to the system, where the C library can (glibc).

    Outside of `frugal`, where that would take long, nothing is done.
    """
    if not gc.get_freeze_count():
        return
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
