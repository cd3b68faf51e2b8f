"""Memory as the kernel gives it: mappings that can lie in huge pages, and what they really got.

Gathering rows out of a large table misses the processor's address cache (TLB) with nearly every row: 2 MB
pages instead of 4 KB ones make such a gather about twice as fast. A mapping gets them only if it begins at
a multiple of their size, and then only where the kernel and the file system play along, so that nothing
here is promised: `Mapping.usage` reads from /proc what is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["COLLAPSE", "HUGEPAGE", "POPULATE_READ", "Mapping", "Usage", "available_memory", "huge_page"]

# Values of <linux/mman.h>, the same on all architectures; Python's mmap has not all of them.
HUGEPAGE, POPULATE_READ, COLLAPSE = 14, 22, 25
_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value
_THP = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_KINDS = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")
# Limit and use of memory of the control group (container) that we are in: version 2, version 1.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


@dataclass(frozen=True)
class Usage:
    """What a mapping has in memory.

    Args:
        resident: bytes that can be read without a page fault.
        share: bytes of them that count for this process if each page is shared out among those who map it.
        huge: bytes that are mapped by huge pages.
    """

    resident: int
    share: int
    huge: int


class Mapping:
    """A file or memfd, mapped for all who map it alike, at an address where huge pages are possible.

    Args:
        file: file descriptor; may be closed afterwards.
        size: bytes from the beginning of the file.
        writable: whether `bytes` may be written to; needs a file opened for that.
        keep: keep the file open as long as the mapping, and close it then.

    Raises:
        OSError: the kernel refuses.
    """

    def __init__(self, file: int, size: int, writable: bool = False, keep: bool = False) -> None:
        self.size = size
        self.address = _map_aligned(file, size, writable)
        memory = (ctypes.c_char * size).from_address(self.address)
        self._unmap = weakref.finalize(memory, _unmap, self.address, size, file if keep else None)
        # At the process's end the kernel does it, and later than the last thread that may still read.
        self._unmap.atexit = False
        view = memoryview(memory).cast("B")
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(view if writable else view.toreadonly(), np.uint8)
        """uint8 [size]; keeps the mapping alive, as do its views."""

    def advise(self, advice: int) -> bool:
        """Ask for something; False: refused, or unknown to this kernel."""
        return bool(_libc().madvise(self.address, self.size, advice) == 0)

    def touch(self) -> None:
        """Read every page once, so that none is missing later."""
        if not self.advise(POPULATE_READ):  # Linux before 5.14
            self.bytes[:: mmap.PAGESIZE].max(initial=0)

    def usage(self) -> Usage | None:
        """What is in memory now; None where /proc does not say."""
        try:
            text = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return read_usage(text, self.address, self.size)

    def close(self) -> None:
        """Unmap now instead of with the last array on it: nothing of `bytes` may be used any more."""
        self._unmap()


def read_usage(smaps: str, address: int, size: int) -> Usage:
    """Sum up what /proc/PID/smaps says of [address, address + size). Pure."""
    found = dict.fromkeys(("Rss", "Pss", *_KINDS), 0)
    inside = False
    for line in smaps.splitlines():
        head, _, rest = line.partition(" ")
        if head.endswith(":"):
            if inside and head[:-1] in found:
                found[head[:-1]] += int(rest.split()[0]) << 10
        else:
            first, _, last = head.partition("-")
            inside = int(first, 16) < address + size and int(last, 16) > address
    return Usage(found["Rss"], found["Pss"], sum(found[kind] for kind in _KINDS))


def huge_page() -> int:
    """Bytes of a transparent huge page; 0: this kernel has none."""
    with contextlib.suppress(OSError, ValueError):
        return int(_THP.read_text(encoding="ascii"))
    return 0


def available_memory() -> int:
    """Bytes that can be taken without pushing anything but caches out; what the container leaves counts."""
    found = [_meminfo("MemAvailable")]
    for limit, current, stat in _GROUPS:
        with contextlib.suppress(OSError, ValueError, StopIteration):  # "max" is no number: no limit
            free = int(Path(limit).read_text(encoding="ascii")) - int(
                Path(current).read_text(encoding="ascii")
            )
            lines = Path(stat).read_text(encoding="ascii").splitlines()
            # Cached files count as used until they make room.
            found.append(free + next(int(line.split()[1]) for line in lines if "inactive_file " in line))
    return max(0, min(found))


def _meminfo(name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    return 0


def _map_aligned(file: int, size: int, writable: bool) -> int:
    """Map at a multiple of the huge page's size: reserve more than is needed, take the aligned part of it."""
    step = max(huge_page(), mmap.PAGESIZE)
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    reserved = _mmap(None, whole + step, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    address = -(-reserved // step) * step
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    try:
        _mmap(address, size, protection, mmap.MAP_SHARED | _MAP_FIXED, file)
    except OSError:
        _libc().munmap(reserved, whole + step)
        raise
    if address > reserved:
        _libc().munmap(reserved, address - reserved)
    _libc().munmap(address + whole, reserved + step - address)
    return address


def _unmap(address: int, size: int, file: int | None) -> None:
    _libc().munmap(address, size)
    if file is not None:
        os.close(file)


def _mmap(address: int | None, size: int, protection: int, flags: int, file: int) -> int:
    found = _libc().mmap(address, size, protection, flags, file, 0)
    if found == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(found)


@functools.cache
def _libc() -> ctypes.CDLL:
    # Python's own mmap chooses the address by itself, which then is no multiple of a huge page.
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    libc.madvise.argtypes = [pointer, size, number]
    return libc
