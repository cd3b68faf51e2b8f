"""Tables in files on this host, mapped so that all instances share one copy, in huge pages if possible.

Whether a mapped file lies in huge pages depends on the file system and on how the file came into the
system's cache: ext4 of Linux 6.18 has them when the file was read through a mapping that asked for them,
and not when it has just been written in pieces. So, for a large arena, in this order:

1. a copy in memory that another instance has made is used;
2. the file is mapped as it is;
3. if it does not lie in huge pages, the kernel is asked to collect its pages (it does for tmpfs, some do
   for all);
4. else it is dropped from the cache and read anew (costs reading it from the disk, and no memory; not done
   where a first piece shows that it does not help);
5. else it is copied into memory once for all instances (shared_copy.py), where there is room for it;
6. else it stays mapped as it is.

Instances of one server start together, so they take turns, by a lock on the file itself: the first one does
what is to be done, the others find it done.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import shared_copy
from .pages import COLLAPSE, HUGEPAGE, Usage, available_memory, huge_page
from .pages import Mapping as Pages
from .plan import Plan
from .tables import Arena, Array, describe_arenas

__all__ = ["POLICIES", "VARIABLE", "LocalStore"]

#: What to do for huge pages: "auto", as above; "file", the same without a copy, for small arenas too; "copy",
#: always a copy; "off", map the files and leave the rest to the system.
POLICIES = ("auto", "file", "copy", "off")
#: The environment variable that says it, since it depends on the host, not on the model.
VARIABLE = "BIREME_HUGE_PAGES"

# Huge pages make a gather 1.07 times as fast at 8 MB, 1.2 at 16 MB, 1.8 at 1 GB (perf/micro/page_kinds.py).
SMALLEST = 16 << 20
# A mapping counts as huge from this share on: the file's end and some odd pages are never in huge pages.
ENOUGH = 0.9
# A copy is made if this many times its size is available: it cannot be dropped when memory gets short.
ROOM = 2
_PROBE = 16 << 20  # bytes that are read anew before the whole file is
# Seconds to wait for others who hold the lock; a copy of 10^9 bytes took 2 to 16 s, busy as the host was.
_PATIENCE, _PATIENCE_PER_BYTE = 60.0, 60e-9
_PAUSE = 0.02


class LocalStore:
    """The "local" table store.

    Args:
        arenas: see `store.TableStore`.
        notes: see `store.TableStore`.
    """

    def __init__(self, arenas: Mapping[str, Array], notes: tuple[str, ...]) -> None:
        self.arenas = arenas
        self.notes = notes

    @classmethod
    def open(cls, folder: Path, plan: Plan, huge_pages: str) -> LocalStore:
        """Map the plan's arenas; see `store.open_store`."""
        if huge_pages not in POLICIES:
            raise ValueError(f"{VARIABLE}={huge_pages!r}: must be one of {', '.join(POLICIES)}")
        opened = {a.path.name: open_arena(a, huge_pages) for a in describe_arenas(folder, plan.tables)}
        notes = tuple(found.note(name) for name, found in opened.items())
        return cls({name: found.rows for name, found in opened.items()}, notes)


@dataclass(frozen=True)
class Opened:
    """One arena in memory.

    Args:
        rows: as `Arena.over` gives them.
        how: where they lie, and why, in words.
        usage: what they had in memory when they were opened; None: not known.
    """

    rows: Array
    how: str
    usage: Usage | None

    def note(self, name: str) -> str:
        """One line for the log."""
        huge = "huge pages unknown" if self.usage is None else f"{_mb(self.usage.huge)} in huge pages"
        return f"{name}: {_mb(self.rows.nbytes)}, {huge} ({self.how})"


def open_arena(arena: Arena, policy: str) -> Opened:
    """Map one arena by a policy of `POLICIES`."""
    with _opened(arena.path) as file:
        step = huge_page()
        if policy == "off":
            return _plain(arena, file, "mapped file; huge pages are off")
        if not step:
            return _plain(arena, file, "mapped file; this kernel has no transparent huge pages")
        if policy == "auto" and arena.size < max(SMALLEST, 2 * step):
            return _plain(arena, file, "mapped file; too small to gain from huge pages")
        try:
            with _turn(file):
                return _copied(arena, file) if policy == "copy" else _best(arena, file, policy == "auto")
        except OSError as error:
            return _plain(arena, file, f"mapped file; huge pages failed: {error.strerror or error}")


def _best(arena: Arena, file: int, may_copy: bool) -> Opened:
    """Steps 1 to 6 of the module's text."""
    copy = shared_copy.find(file, arena.size)
    if copy is not None:
        return _over_copy(arena, copy, "the instances' shared copy")
    if arena.size > available_memory():
        return _plain(arena, file, "mapped file; larger than the memory that is available")
    pages, usage = _touched(file, arena.size)
    how = "mapped file"
    if usage is not None and not _is_huge(usage, arena.size) and pages.advise(COLLAPSE):
        usage, how = pages.usage(), "mapped file, its pages collected"
    if usage is not None and not _is_huge(usage, arena.size):
        pages.close()
        pages, usage, again = _read_anew(file, arena.size)
        how = "mapped file, read anew" if again else how
        if not _is_huge(usage, arena.size) and may_copy:
            if ROOM * arena.size <= available_memory():
                pages.close()
                return _copied(arena, file)
            how = f"{how}; no room for a copy"
    return Opened(arena.over(pages.bytes), how, usage)


def _copied(arena: Arena, file: int) -> Opened:
    """Use the instances' shared copy, made now if there is none."""
    copy = shared_copy.find(file, arena.size)
    how = "the instances' shared copy"
    if copy is None:
        copy = shared_copy.make(file, arena.size, _ask_for_huge)
        how += ", made now"
        # The file's own pages are not needed any more: else the tables would be in memory twice.
        _drop(file, arena.size)
    return _over_copy(arena, copy, how)


def _over_copy(arena: Arena, copy: int, how: str) -> Opened:
    # The descriptor stays open as long as the mapping, so that later instances find the copy.
    pages, usage = _touched(copy, os.fstat(copy).st_size, keep=True)
    return Opened(arena.over(pages.bytes), how, usage)


def _ask_for_huge(pages: Pages) -> None:
    """Before the pages are there, for kernels that then give huge ones; after, to have them collected."""
    pages.advise(HUGEPAGE)
    usage = pages.usage()
    if usage is not None and usage.resident and not _is_huge(usage, pages.size):
        pages.advise(COLLAPSE)


def _touched(file: int, size: int, keep: bool = False) -> tuple[Pages, Usage | None]:
    """Map a file and read all of it; see `pages.Mapping`."""
    pages = Pages(file, size, keep=keep)
    pages.advise(HUGEPAGE)
    pages.touch()
    return pages, pages.usage()


def _read_anew(file: int, size: int) -> tuple[Pages, Usage | None, bool]:
    """Drop the file from the system's cache and read it through a mapping that asks for huge pages.

    Returns:
        The file's mapping, what it has, and whether the whole file was read anew.
    """
    _drop(file, min(_PROBE, size))
    probe, usage = _touched(file, min(_PROBE, size))
    helps = _is_huge(usage, probe.size)
    probe.close()
    if helps:
        _drop(file, size)
    return (*_touched(file, size), helps)


def _drop(file: int, size: int) -> None:
    """Drop what the system's cache has of a file, unless others use it."""
    with contextlib.suppress(OSError):  # a matter of speed only
        os.fsync(file)  # only what is on the disk can be dropped
        os.posix_fadvise(file, 0, size, os.POSIX_FADV_DONTNEED)


def _is_huge(usage: Usage | None, size: int) -> bool:
    return usage is not None and usage.huge >= ENOUGH * size


def _plain(arena: Arena, file: int, how: str) -> Opened:
    pages = Pages(file, arena.size)
    return Opened(arena.over(pages.bytes), how, pages.usage())


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def _turn(file: int) -> Iterator[None]:
    """Hold the lock on a file; it goes with the process, in whichever way that ends.

    Raises:
        OSError: the file system has no locks, or others hold it too long.
    """
    patience = _PATIENCE + _PATIENCE_PER_BYTE * os.fstat(file).st_size
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"others have held the file's lock for {patience:.0f} s") from None
            time.sleep(_PAUSE)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e6 or not size else f"{size / 1e3:.0f} kB"
