"""One copy of a file in memory, shared by all processes that want it, with nothing to clean up.

The copy is a memfd: memory without a name in any file system, which the kernel frees with the last process
that has it open, in whichever way that ends. Others find it among the open files of the living processes of
the same user (/proc/PID/fd) by a name that says which file it copies, and in which state. A copy is sealed
when it is whole, for ever: what is not sealed is not used, and what is can be changed by nobody.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .pages import Mapping, huge_page

__all__ = ["find", "key_of", "make"]

# Of <linux/memfd.h> and <linux/fcntl.h>; Python has them only where it was built with them.
_CLOEXEC, _ALLOW_SEALING = 0x1, 0x2
_NOEXEC_SEAL = 0x8  # asked for by some hardened hosts, unknown before Linux 6.3
_ADD_SEALS, _GET_SEALS = 1033, 1034
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # no further seals, no shrinking, no growing, no writing
_CHUNK = 16 << 20  # bytes read at a time


def key_of(file: int) -> str:
    """A name for what an open file holds now; another one as soon as it is replaced or written to."""
    status = os.fstat(file)
    return f"bireme-{status.st_dev:x}-{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def make(file: int, size: int, prepare: Callable[[Mapping], object]) -> int:
    """Copy a file.

    Args:
        file: the file, open for reading.
        size: its bytes.
        prepare: called with the empty copy, mapped, and again when it is filled: asks for huge pages.

    Returns:
        Descriptor of the copy, open for reading; processes can find it as long as it is open. Its size is a
        multiple of a huge page's.

    Raises:
        OSError: no memory, or this kernel or its policy has no such thing.
    """
    step = huge_page() or 1
    whole = -(-size // step) * step
    copy = _create(key_of(file))
    try:
        os.ftruncate(copy, whole)
        mapping = Mapping(copy, whole, writable=True)
        try:
            prepare(mapping)
            _fill(file, mapping.bytes[:size])
            prepare(mapping)
        finally:
            mapping.close()
        fcntl.fcntl(copy, _ADD_SEALS, _SEALS)
        # A sealed memfd cannot be mapped through a descriptor that is open for writing (before Linux 6.7).
        return os.open(f"/proc/self/fd/{copy}", os.O_RDONLY)
    finally:
        os.close(copy)


def find(file: int, size: int) -> int | None:
    """A copy of this file that a living process of this user holds.

    Args:
        file: the file, open for reading.
        size: its bytes.

    Returns:
        Descriptor of the copy, open for reading; None: there is none.
    """
    name = key_of(file)
    for process in _own_processes():
        for link in _open_files(process):
            with contextlib.suppress(OSError):  # processes and their files come and go
                if _is_named(link, name):
                    copy = os.open(link, os.O_RDONLY)
                    if _is_whole(copy, size):
                        return copy
                    os.close(copy)
    return None


def _create(name: str) -> int:
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this Python cannot make memory files")
    try:
        return os.memfd_create(name, _CLOEXEC | _ALLOW_SEALING | _NOEXEC_SEAL)
    except OSError:
        return os.memfd_create(name, _CLOEXEC | _ALLOW_SEALING)


def _fill(file: int, target: np.ndarray[Any, Any]) -> None:
    done = 0
    while done < len(target):
        count = os.preadv(file, [target[done : done + _CHUNK].data], done)
        if not count:
            raise OSError(errno.EIO, "the file ends early")
        done += count


def _own_processes() -> list[Path]:
    """This one first: it may have opened the file before."""
    user = os.geteuid()
    found = [Path("/proc/self")]
    for entry in _listed(Path("/proc")):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == user:
                found.append(entry)
    return found


def _open_files(process: Path) -> list[Path]:
    return _listed(process / "fd")


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_named(link: Path, name: str) -> bool:
    return str(link.readlink()) == f"/memfd:{name} (deleted)"


def _is_whole(copy: int, size: int) -> bool:
    return fcntl.fcntl(copy, _GET_SEALS) & _SEALS == _SEALS and os.fstat(copy).st_size >= size
