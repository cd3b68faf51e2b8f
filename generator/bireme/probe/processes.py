"""Dead Python processes of a server on this machine: Triton goes on saying ready, and other instances answer.

What cannot be seen (another container, another user's processes) counts as well.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bireme.server.stubs import stub_names, zombies

__all__ = ["dead_processes", "expected_processes", "missing"]

_LOOPBACK = ("127.", "localhost", "[::1]", "::1")
_LISTEN = "0A"


def dead_processes(url: str) -> tuple[int, Mapping[str, int]]:
    """How many Python processes of the server at `url` have died, and model → those that live.

    Args:
        url: host:port; only a loopback address is looked at.
    """
    host, _, port = url.rpartition(":")
    dead = Counter(zombies().values())
    # Mostly none, and then the sockets need no look.
    if not dead or not host.startswith(_LOOPBACK):
        return 0, {}
    sockets = _listening(int(port))
    for server, count in dead.items():
        if _holds(server, sockets):
            return count, Counter(name.rsplit("_", 2)[0] for name in stub_names(server))
    return 0, {}


def expected_processes(config: Mapping[str, Any]) -> int:
    """How many processes a model's configuration asks of the Python backend; 0: of another backend."""
    if config.get("backend") != "python":
        return 0
    return sum(
        int(group.get("count", 1)) * max(1, len(group.get("gpus", ())))
        for group in config.get("instance_group", ())
    )


def missing(configs: Mapping[str, Mapping[str, Any]], alive: Mapping[str, int]) -> list[str]:
    """Models that have fewer processes than their configuration asks for."""
    return [name for name, config in configs.items() if alive.get(name, 0) < expected_processes(config)]


def _listening(port: int) -> set[str]:
    """Inodes of the sockets that listen on a port, whatever the address."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return inodes


def _holds(pid: int, sockets: set[str]) -> bool:
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for entry in entries:
        try:
            if os.readlink(entry) in sockets:  # noqa: PTH115 - not a path, "socket:[…]"
                return True
        except OSError:  # closed meanwhile
            continue
    return False
