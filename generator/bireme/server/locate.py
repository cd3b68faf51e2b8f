"""Finds a tritonserver and says how to call it.

Three places, in this order: one that the caller or `BIREME_TRITONSERVER` names, the system's own (as in
NVIDIA's container), and the one inside the PyPI wheel `nvidia-pytriton` (`backend_folder` completes it).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bireme.errors import ServerError
from bireme.server.backend_folder import Wheel, assemble, find_wheel

__all__ = ["VARIABLE", "Installation", "locate"]

VARIABLE = "BIREME_TRITONSERVER"
"""Environment variable that names a tritonserver binary to use instead of any other."""

CONTAINER = Path("/opt/tritonserver/bin/tritonserver")
_WRAPPER_MARK = b"bireme.server.tritonserver"

# Loading TensorRT models in parallel can capture CUDA graphs that answer wrongly: one at a time, everywhere.
_ONE_BY_ONE = "--model-load-thread-count=1"


@dataclass(frozen=True)
class Installation:
    """A tritonserver and how to call it.

    Args:
        kind: "named" by the caller or by `BIREME_TRITONSERVER`, the "system"'s, or the "embedded" one.
        command: the binary.
        environment: variables to set on top of the caller's, with their full new values.
        flags: default flags; one that the user gives as well gives way (see `arguments`).
    """

    kind: Literal["named", "system", "embedded"]
    command: Path
    environment: Mapping[str, str]
    flags: tuple[str, ...]

    def arguments(self, user: Sequence[str]) -> list[str]:
        """Arguments after the command: default flags that `user` does not give, then `user` untouched.

        Defaults come first because tritonserver takes the last of two: one that the user gave under an
        abbreviated name, which this does not recognise, still wins.
        """
        given = {argument.split("=", 1)[0] for argument in user if argument.startswith("--")}
        return [flag for flag in self.flags if flag.split("=", 1)[0] not in given] + list(user)


def locate(named: Path | None = None, environ: Mapping[str, str] | None = None) -> Installation:
    """Find the tritonserver to use.

    Args:
        named: binary that the caller insists on.
        environ: the environment to look in and to extend; the process's own by default.

    Raises:
        ServerError: the named binary does not exist, or there is none at all, or the embedded one cannot
            work with this Python.
    """
    environ = os.environ if environ is None else environ
    if named is None and environ.get(VARIABLE):
        named = Path(environ[VARIABLE])
    if named is not None:
        return _named(named)
    command = _system(environ)
    if command is not None:
        # The container's Python backend takes its Python from PATH as well: it must find the container's.
        path = {"PATH": _without(environ.get("PATH", os.defpath), _bin())}
        return Installation("system", command, path, (_ONE_BY_ONE,))
    return _embedded(find_wheel(), environ)


def _named(command: Path) -> Installation:
    hint = f"name a tritonserver binary, or unset {VARIABLE} to use the system's or the embedded one"
    if not os.access(command, os.X_OK) or not command.is_file():
        raise ServerError(str(command), "is not an executable file", hint)
    if _is_wrapper(command):
        raise ServerError(str(command), "is bireme's own wrapper, which would start itself", hint)
    return Installation("named", command.absolute(), {}, (_ONE_BY_ONE,))


def _system(environ: Mapping[str, str]) -> Path | None:
    folders = [Path(folder) for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    for command in [CONTAINER, *(folder / "tritonserver" for folder in folders)]:
        if os.access(command, os.X_OK) and command.is_file() and not _is_wrapper(command):
            return command
    return None


def _is_wrapper(command: Path) -> bool:
    """Whether `command` is a console script of this package (of this or another environment)."""
    try:
        with command.open("rb") as file:
            head = file.read(2048)
    except OSError:
        return False
    return head.startswith(b"#!") and _WRAPPER_MARK in head


def _embedded(wheel: Wheel, environ: Mapping[str, str]) -> Installation:
    folder = assemble(wheel)
    # The Python backend's stub runs as the Python whose `python3` comes first on PATH; it ignores PYTHONHOME
    # and PYTHONPATH. Its libpython comes from the assembled folder.
    path = os.pathsep.join([str(_bin()), _without(environ.get("PATH", os.defpath), _bin())])
    libraries = [str(folder.libraries), *filter(None, [environ.get("LD_LIBRARY_PATH")])]
    return Installation(
        kind="embedded",
        command=wheel.command,
        environment={"PATH": path, "LD_LIBRARY_PATH": os.pathsep.join(libraries)},
        flags=(
            f"--backend-directory={folder.backends}",
            f"--cache-directory={wheel.caches}",
            _ONE_BY_ONE,
        ),
    )


def _bin() -> Path:
    """Folder of the running interpreter: a venv's bin, unresolved, so that Python finds its pyvenv.cfg."""
    return Path(sys.executable).parent


def _without(path: str, folder: Path) -> str:
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if entry and Path(entry) != folder)
