"""Mapped files of a build: which they are, and letting go of their pages.

A page that is mapped counts as the process's memory (VmRSS, VmHWM), and one that is touched brings its
neighbours along: Linux maps 16 pages, 64 KB, around every row that a check looks up. Some thousand candidates
so map all of a model's tables, twice over: the original's variables and the files that are served. What is
let go stays in the system's cache, from where it is mapped again when it is wanted.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path

__all__ = ["let_go", "mappings"]

_MAPS = Path("/proc/self/maps")


def mappings(folder: Path) -> list[tuple[int, int]]:
    """First address and size in bytes of every mapping of files below a folder, of removed ones too.

    Empty on systems that do not tell.
    """
    below = f" {folder.resolve()}/"
    found = []
    with contextlib.suppress(OSError):
        for line in _MAPS.read_text(encoding="utf-8", errors="replace").splitlines():
            if below in line:
                first, last = (int(address, 16) for address in line.split(maxsplit=1)[0].split("-"))
                found.append((first, last - first))
    return found


def let_go(folder: Path) -> None:
    """Unmap the pages of all mapped files below a folder; they are read again when they are touched.

    Only for files that nobody writes to through the mapping: that would be lost.
    """
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        for first, size in mappings(folder):
            advise(ctypes.c_void_p(first), ctypes.c_size_t(size), ctypes.c_int(mmap.MADV_DONTNEED))
