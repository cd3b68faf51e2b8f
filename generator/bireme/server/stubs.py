"""The Python processes of a server (Triton calls them stubs), found in /proc.

A stub is a child of the server, and its command line carries the name of its shared-memory region, which
starts with the prefix that we chose for the server. That prefix finds whatever a server has left behind, in
whichever way it ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "clear",
    "clear_stale",
    "dead_stubs",
    "live_stubs",
    "new_prefix",
    "stale_regions",
    "stub_names",
    "zombies",
]

_SHARED_MEMORY = Path("/dev/shm")
_STUB = "triton_python_backend_stub"
_PREFIX = re.compile(r"bireme_\d+_(\d+)_[0-9a-f]{12}_")


def new_prefix() -> str:
    """A prefix of shared-memory regions for one server, never used before.

    It says who started the server, and in which namespace of process ids: a container may share /dev/shm with
    others whose processes it cannot see.
    """
    return f"bireme_{os.getpid()}_{_namespace()}_{uuid.uuid4().hex[:12]}_"


def clear_stale() -> None:
    """Remove the shared memory of servers that are gone, which were killed before they could do it.

    Triton leaves its regions behind when it is killed; if whoever started it is killed too, nobody is left.
    """
    for region in stale_regions():
        with contextlib.suppress(OSError):  # another user's
            region.unlink(missing_ok=True)


def stale_regions() -> list[Path]:
    """Shared memory of servers that `new_prefix` named and that are gone."""
    # In this order: a region that was there before, and has no server, will never have one.
    regions = [(region, _PREFIX.match(region.name)) for region in _SHARED_MEMORY.glob("bireme_*")]
    running = "\n".join("\n".join(arguments) for arguments in _carriers("bireme_").values())
    return [
        region
        for region, prefix in regions
        if prefix is not None and prefix[1] != "0" and prefix[1] == _namespace() and prefix[0] not in running
    ]


def live_stubs(prefix: str) -> dict[int, str]:
    """Process id → model instance (for example "ctr_dnn_0_0") of every running stub with this prefix."""
    return {
        pid: next((argument for argument in arguments if _is_instance(argument)), "?")
        for pid, arguments in _carriers(prefix).items()
        if arguments[0].endswith(_STUB)
    }


def dead_stubs(server: int) -> set[int]:
    """Process ids of stubs that ended while the server `server` still counts on them (zombies)."""
    return {pid for pid, parent in zombies().items() if parent == server}


def zombies() -> dict[int, int]:
    """Process id of every stub that ended → its server, which still counts on it."""
    return {pid: parent for pid, state, parent in _stubs() if state == "Z"}


def stub_names(server: int) -> list[str]:
    """Model instances (for example "ctr_dnn_0_0") that have a running stub of the server `server`."""
    names = []
    for pid, state, parent in _stubs():
        if parent == server and state != "Z":
            arguments = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
            names += [argument for argument in arguments if _is_instance(argument)][:1]
    return names


def _stubs() -> Iterator[tuple[int, str, int]]:
    """Process id, state and parent of every stub of the machine."""
    for entry in _processes():
        # "pid (name) state parent …"; the kernel cuts the name to 15 characters.
        name, _, rest = _read(entry / "stat").partition("(")[2].rpartition(")")
        if name == _STUB[:15]:
            state, parent = rest.split()[:2]
            yield int(entry.name), state, int(parent)


def clear(prefix: str, wait: float = 2.0) -> None:
    """Kill what is left of a server and its stubs, and remove its shared memory.

    Args:
        prefix: the server's own prefix of shared-memory regions.
        wait: seconds to wait for killed processes to go.
    """
    deadline = time.monotonic() + wait
    while left := _carriers(prefix):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    for region in _SHARED_MEMORY.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def _carriers(prefix: str) -> dict[int, list[str]]:
    """Process id → arguments of every running process with `prefix` in one of its arguments."""
    found = {}
    for entry in _processes():
        arguments = _read(entry / "cmdline").split("\0")
        if any(prefix in argument for argument in arguments):
            found[int(entry.name)] = arguments
    return found


def _namespace() -> str:
    """Of process ids; "0": unknown."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def _is_instance(argument: str) -> bool:
    """Instance names end in _GROUP_INDEX: two numbers."""
    parts = argument.rsplit("_", 2)
    return len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit() and "/" not in argument


def _processes() -> list[Path]:
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has gone meanwhile
        return ""
