"""CPU time of a server and of its models' Python processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bireme.server.stubs import live_stubs

__all__ = ["busy_seconds", "cpu_seconds", "roles", "thread_seconds"]

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PREFIX = "bireme_"  # of the shared memory of every server that `TritonServer` starts


def roles(server: int) -> dict[int, str]:
    """Process id → "server", or the name of the model that the Python process belongs to.

    Args:
        server: process id of tritonserver.
    """
    found = {server: "server"}
    for pid, instance in live_stubs(_PREFIX).items():
        if int(_stat(pid)[1]) == server:
            found[pid] = instance.rsplit("_", 2)[0]
    return found


def cpu_seconds(processes: Mapping[int, str]) -> dict[str, float]:
    """CPU time spent so far, user and system, summed over the processes of each role.

    Args:
        processes: process id → role.
    """
    spent = dict.fromkeys(processes.values(), 0.0)
    for pid, role in processes.items():
        fields = _stat(pid)
        spent[role] += (int(fields[11]) + int(fields[12])) * _TICK
    return spent


def thread_seconds(processes: Mapping[int, str]) -> float:
    """CPU time that all living threads have spent so far, by the scheduler's clock: nanoseconds, not ticks.

    Args:
        processes: process id → role.
    """
    spent = 0
    for pid in processes:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # a thread that has just ended
                spent += int(path.read_text(encoding="ascii").split()[0])
    return spent / 1e9


def busy_seconds() -> float:
    """CPU time that the whole machine has spent so far, everybody's."""
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq + steal) * _TICK


def _stat(pid: int) -> list[str]:
    """State, parent and so on: the fields after the process name, which may hold spaces."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()
