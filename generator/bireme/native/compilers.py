"""Which C compilers are there for an architecture."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bireme.native.flags import host_architecture

__all__ = ["Compiler", "compilers_for"]

_SECONDS = 60
# Older than the C library of any Triton image that the ensembles run in (2.31): the result loads there.
_ZIG_GLIBC = "2.28"


@dataclass(frozen=True)
class Compiler:
    """A compiler for one architecture.

    Args:
        name: for messages.
        command: how to call it, with what selects the target.
        asked_for: named by the user in $CC: if it fails, no other one takes its place silently.
    """

    name: str
    command: tuple[str, ...]
    asked_for: bool = False


def compilers_for(arch: str) -> Iterator[Compiler]:
    """Compilers that say they produce code for Linux with glibc on `arch`, best first.

    $CC (alone, if it is for this architecture or does not answer at all); else cc, gcc, clang and
    `<arch>-linux-gnu-gcc` from PATH, then PyPI's `ziglang` and a `zig` from PATH, which compile for any.
    """
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        target = _target(named)
        # A $CC that does not answer counts as one for this machine: cross builds leave it alone.
        if _fits(target, arch) if target else arch == host_architecture():
            yield Compiler(f"$CC ({' '.join(named)})", tuple(named), asked_for=True)
            return
    seen = set()
    for word in ("cc", "gcc", "clang", f"{arch}-linux-gnu-gcc"):
        path = shutil.which(word)
        if path is not None and os.path.realpath(path) not in seen and _fits(_target([path]), arch):
            seen.add(os.path.realpath(path))
            yield Compiler(word, (path,))
    target = f"{arch}-linux-gnu.{_ZIG_GLIBC}"
    if importlib.util.find_spec("ziglang") is not None:
        yield Compiler("ziglang", (sys.executable, "-m", "ziglang", "cc", "-target", target))
    elif (zig := shutil.which("zig")) is not None:
        yield Compiler("zig", (zig, "cc", "-target", target))


def _target(command: list[str]) -> str:
    """What a compiler says it compiles for, such as `x86_64-linux-gnu`; empty if it does not answer."""
    try:
        done = subprocess.run(
            [*command, "-dumpmachine"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _fits(target: str, arch: str) -> bool:
    return target.split("-")[0] == arch and "linux" in target and "musl" not in target
