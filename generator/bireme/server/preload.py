"""jemalloc for the server and its Python processes: found where it is installed, preloaded if it fits.

`find_jemalloc` also serves whoever writes manifests: it says where the library lies, or that there is none.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bireme.errors import ServerError

__all__ = ["INSTALL", "VARIABLE", "Preload", "find_jemalloc", "preload"]

VARIABLE = "BIREME_JEMALLOC"
"""Environment variable: "off"; or the path of the library to preload; or "auto", as if it were not set."""

INSTALL = "apt-get install libjemalloc2"
_LIBRARY = "libjemalloc.so.2"
_FOLDERS = tuple(
    Path(folder)
    for folder in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib64",
        "/usr/local/lib",
    )
)
# Another allocator that the user preloads is the user's decision.
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "hoard", "rpmalloc", "snmalloc")
# class, byte order and machine of an ELF file: what must be equal for the loader to take it.
_ELF_CLASS, _ELF_MACHINE, _ELF_HEAD = slice(0, 6), slice(18, 20), 20


@dataclass(frozen=True)
class Preload:
    """What to do about the allocator.

    Args:
        environment: variables to set for the server, with their full new values; empty: none.
        line: what is used and why, for the user.
    """

    environment: Mapping[str, str]
    line: str


def preload(environ: Mapping[str, str], wanted: bool | None = None) -> Preload:
    """Decide on the allocator of a server that is started from this environment.

    Args:
        environ: the server's environment without it; its LD_PRELOAD is kept and comes first.
        wanted: False: leave the allocator alone; True: jemalloc or nothing; None: jemalloc where it is.

    Raises:
        ServerError: `BIREME_JEMALLOC` names no library that can be loaded, or jemalloc is wanted and missing.
    """
    setting = environ.get(VARIABLE, "").strip()
    before = environ.get("LD_PRELOAD", "")
    if wanted is False or (wanted is None and setting.lower() == "off"):
        return Preload({}, "allocator: the system's (jemalloc is switched off)")
    given = next((one for one in before.replace(":", " ").split() if _is_allocator(one)), None)
    if given is not None:
        return Preload({}, f"allocator: {given}, as LD_PRELOAD says")
    if setting.lower() not in ("", "auto", "off"):
        library: Path | None = Path(setting)
        if not _fits(Path(setting)):
            hint = f"name a {_LIBRARY} of this machine, or unset {VARIABLE}"
            raise ServerError(f"{VARIABLE}={setting}", "is no library that this machine can load", hint)
    else:
        library = find_jemalloc(environ)
    if library is None:
        if wanted:
            raise ServerError(_LIBRARY, "is not installed", INSTALL)
        return Preload({}, f"allocator: the system's ({_LIBRARY} is not installed: {INSTALL})")
    return Preload(
        {"LD_PRELOAD": f"{before}:{library}" if before else str(library)}, f"allocator: {library}, preloaded"
    )


def find_jemalloc(
    environ: Mapping[str, str] | None = None, folders: Iterable[Path] = _FOLDERS
) -> Path | None:
    """The first libjemalloc.so.2 that this machine's programs can load; None: there is none.

    Args:
        environ: its LD_LIBRARY_PATH comes first; the process's own by default.
        folders: the system's; then what the loader's cache knows, and this Python's own (conda).
    """
    environ = os.environ if environ is None else environ
    named = [Path(entry) for entry in environ.get("LD_LIBRARY_PATH", "").split(":") if entry]
    places = [*(folder / _LIBRARY for folder in (*named, *folders))]
    for path in (*places, *_cached(), Path(sys.prefix) / "lib" / _LIBRARY):
        # LD_PRELOAD splits at spaces and colons; a relative path would depend on the working folder.
        if path.is_absolute() and not set(" :\t\n") & set(str(path)) and _fits(path):
            return path
    return None


def _cached() -> Iterator[Path]:
    """What the loader's cache knows, from `ldconfig -p`."""
    for command in ("ldconfig", "/sbin/ldconfig"):
        try:
            done = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        for line in done.stdout.splitlines():
            name, _, path = line.strip().partition(" => ")
            if name.split(" ")[0] == _LIBRARY and path:
                yield Path(path)
        return


def _fits(library: Path) -> bool:
    """Whether it is an ELF file for the machine that this Python was made for.

    The loader only warns about one that is not, in every process that starts.
    """
    try:
        own, other = (path.open("rb").read(_ELF_HEAD) for path in (Path(sys.executable), library))
    except OSError:
        return False
    if len(other) < _ELF_HEAD or not other.startswith(b"\x7fELF"):
        return False
    (kind,) = struct.unpack_from("<H" if other[5] == 1 else ">H", other, 16)
    shared_object = 3
    return kind == shared_object and all(own[part] == other[part] for part in (_ELF_CLASS, _ELF_MACHINE))


def _is_allocator(library: str) -> bool:
    name = Path(library).name.lower()
    return any(allocator in name for allocator in _ALLOCATORS)
