"""Facts of the host: what /proc, /sys and /dev/shm say."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path

from bireme.cores import usable_cores
from bireme.doctor.facts import Cores, Limits, Pages, Port, Region, SharedMemory
from bireme.server.stubs import stale_regions
from bireme_runtime.pages import COLLAPSE, HUGEPAGE, huge_page
from bireme_runtime.pages import Mapping as Memory

__all__ = ["find_cores", "find_limits", "find_pages", "find_ports", "find_shared", "listeners", "numbers"]

_ROOT = Path("/")
_SHARED = Path("/dev/shm")
#: How Triton's Python backend names its regions where nobody chose a prefix.
_FOREIGN = "triton_python_backend_shm_region_"
_PORTS = (8000, 8001, 8002)
_LISTEN = "0A"  # TCP_LISTEN of <linux/tcp_states.h>, as /proc/net/tcp writes it
_PROBE = 2  # huge pages


def find_shared() -> SharedMemory:
    """/dev/shm."""
    try:
        status = os.statvfs(_SHARED)
    except OSError:
        return SharedMemory(0, 0)
    stale = tuple(_region(path) for path in stale_regions())
    # In this order: a region that was there before, and that nobody names, has no server.
    regions = sorted(_SHARED.glob(f"{_FOREIGN}*"))
    named = _command_lines() if regions else ""
    foreign = tuple(_region(path) for path in regions if path.name not in named)
    return SharedMemory(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize, stale, foreign)


def _region(path: Path) -> Region:
    with contextlib.suppress(OSError):  # gone meanwhile
        return Region(path.name, path.stat().st_size)
    return Region(path.name, 0)


def _command_lines() -> str:
    return "\n".join(_text(path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def find_pages() -> Pages:
    """Transparent huge pages: what is set, and what a memory file really gets."""
    folder = Path("/sys/kernel/mm/transparent_hugepage")
    size = huge_page()
    return Pages(
        size, chosen(_text(folder / "enabled")), chosen(_text(folder / "shmem_enabled")), _copy(size)
    )


def chosen(text: str) -> str:
    """The word in brackets, of "always [madvise] never"; "": there is none. Pure."""
    return text.partition("[")[2].partition("]")[0]


def _copy(size: int) -> bool:
    """Whether a memory file gets huge pages, asked for as `local_store` does for an arena's copy."""
    if not size or not hasattr(os, "memfd_create"):
        return False
    try:
        file = os.memfd_create("bireme-doctor")
        try:
            os.ftruncate(file, _PROBE * size)
            memory = Memory(file, _PROBE * size, writable=True)
            try:
                memory.advise(HUGEPAGE)
                memory.bytes[:] = 1
                found = memory.usage()
                if found is not None and found.huge < _PROBE * size:
                    memory.advise(COLLAPSE)
                    found = memory.usage()
                return found is not None and found.huge >= _PROBE * size
            finally:
                memory.close()
        finally:
            os.close(file)
    except OSError:
        return False


def find_cores(root: Path = _ROOT) -> Cores:
    """Processors and NUMA nodes.

    Args:
        root: where /proc and /sys lie.
    """
    nodes = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        cpus = numbers(_text(folder / "cpulist"))
        if cpus:
            nodes[int(folder.name.removeprefix("node"))] = cpus
    return Cores(frozenset(os.sched_getaffinity(0)), usable_cores(root), nodes)


def numbers(text: str) -> frozenset[int]:
    """The numbers of a list as the kernel writes it, such as "0-3,8". Pure."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def find_limits() -> Limits:
    """Soft limits."""
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE)
    return Limits(*(resource.getrlimit(kind)[0] for kind in kinds))


def find_ports(wanted: Iterable[int] = _PORTS, root: Path = _ROOT) -> tuple[Port, ...]:
    """Those of the wanted ports that somebody listens on, and who.

    Args:
        wanted: TCP ports.
        root: where /proc lies.
    """
    held: dict[int, str] = {}
    for name in ("tcp", "tcp6"):
        held.update(listeners(_text(root / "proc/net" / name)))
    held = {port: inode for port, inode in held.items() if port in set(wanted)}
    holders = _holders(root, held) if held else {}
    return tuple(Port(port, *holders.get(inode, (0, ""))) for port, inode in sorted(held.items()))


def listeners(text: str) -> dict[int, str]:
    """Port → inode of the socket that listens on it, of /proc/net/tcp or tcp6. Pure."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def _holders(root: Path, held: Mapping[int, str]) -> dict[str, tuple[int, str]]:
    """Inode → process id and name of whoever has that socket open, as far as we may see."""
    wanted = {f"socket:[{inode}]": inode for inode in held.values()}
    found: dict[str, tuple[int, str]] = {}
    for process in (root / "proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    inode = wanted.get(str(link.readlink()))
                    if inode is not None:
                        found.setdefault(inode, (int(process.name), _text(process / "comm").strip()))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
