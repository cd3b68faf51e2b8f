"""Memory of other processes, from /proc: what they have, and how much of it is tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bireme_runtime.shared_copy import key_of

__all__ = ["Memory", "copies_in_memory", "memory_of", "parse"]

_HEAD = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)")
_COPY = "/memfd:bireme-"
_HUGE = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")


@dataclass(frozen=True)
class Memory:
    """Memory of a process in bytes. `share` (PSS): a page that k processes map counts as a k-th for each.

    Args:
        resident: all of it (RSS).
        share: all of it (PSS).
        anonymous: of `share`, what belongs to no file: the process's own.
        table_share: of `share`, mapped tables.
        table_resident: of `resident`, mapped tables.
        table_huge: of `table_resident`, in huge pages.
    """

    resident: int
    share: int
    anonymous: int
    table_share: int
    table_resident: int
    table_huge: int


def memory_of(pid: int, arenas: Collection[str]) -> Memory:
    """What /proc says of a process.

    Args:
        pid: its id.
        arenas: names of the arena files.

    Raises:
        OSError: it has gone, or is another user's.
    """
    return parse(Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace"), arenas)


def parse(smaps: str, arenas: Collection[str]) -> Memory:
    """Sum up the text of /proc/PID/smaps. Pure."""
    total = dict.fromkeys(("Rss", "Pss", "table Rss", "table Pss", "table huge"), 0)
    own, path = 0, ""
    for line in smaps.splitlines():
        head = _HEAD.fullmatch(line)
        if head is not None:
            path = head[1].removesuffix(" (deleted)")
            continue
        name, _, rest = line.partition(":")
        if name not in ("Rss", "Pss", *_HUGE):
            continue
        size = int(rest.split()[0]) << 10
        table = path.startswith(_COPY) or path.rpartition("/")[2] in arenas
        if name in ("Rss", "Pss"):
            total[name] += size
            total[f"table {name}"] += size * table
            own += size * (name == "Pss" and (not path or path.startswith("[")))
        else:
            total["table huge"] += size * table
    return Memory(total["Rss"], total["Pss"], own, *(total[f"table {n}"] for n in ("Pss", "Rss", "huge")))


def copies_in_memory(arenas: Iterable[Path]) -> list[str]:
    """Arena files of which some process holds a copy (a memfd, see bireme_runtime/shared_copy.py)."""
    wanted = {}
    for path in arenas:
        with path.open("rb") as file:
            wanted[f"/memfd:{key_of(file.fileno())} (deleted)"] = path.name
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # gone meanwhile, or another user's
            found.add(wanted.get(str(link.readlink()), ""))
    return sorted(found - {""})
