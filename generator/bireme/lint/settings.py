"""What a reader may tell `bireme lint` about the server that the repository is for."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from bireme.errors import LintError
from bireme.lint.release import Release

__all__ = ["Settings", "read_bytes", "split_flags"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class Settings:
    """How the repository will be served. None: not told, and only what holds in every case is found.

    Args:
        triton: the release; None: all that are known.
        slo_ms: time that a request may take, milliseconds.
        flags: the flags of tritonserver, such as "--cache-config=local,size=1048576".
        shm_bytes: size of /dev/shm.
        memory_bytes: RAM for the Python models.
        variable: the size to count for a dimension of -1.
    """

    triton: Release | None = None
    slo_ms: float | None = None
    flags: tuple[str, ...] | None = None
    shm_bytes: int | None = None
    memory_bytes: int | None = None
    variable: int = 1

    def has_flag(self, beginning: str) -> bool:
        """Whether the server is known to get a flag that begins so."""
        return any(flag.startswith(beginning) for flag in self.flags or ())

    def backend_option(self, backend: str, name: str) -> str | None:
        """The value of `--backend-config=<backend>,<name>=<value>`."""
        for flag in self.flags or ():
            head, _, value = flag.partition(f"--backend-config={backend},{name}=")
            if not head and value:
                return value
        return None


def read_bytes(option: str, text: str) -> int:
    """A size as users write it: 64m, 1.5GiB, 67108864. Units are powers of 1024.

    Raises:
        LintError: it is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise LintError(f"{option} {text}", "is no size", "write bytes, or a number with k, m or g: 64m")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def split_flags(text: str) -> tuple[str, ...]:
    """Flags of tritonserver as a shell would split them; `--name value` is joined to `--name=value`.

    Raises:
        LintError: a quote is not closed.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        raise LintError("--server-flags", "has a quote that is not closed", f"correct: {text}") from None
    flags: list[str] = []
    for word in words:
        if word.startswith("-") or not flags:
            flags.append(word)
        else:
            flags[-1] += f"={word}"
    return tuple(flags)
