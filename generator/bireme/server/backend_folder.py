"""Completes the embedded tritonserver: puts the parts of its Python backend into one folder.

The wheel `nvidia-pytriton` carries the backend's library in one place and a stub per Python version in
others, but tritonserver wants both side by side, and the stub wants a libpython that the loader finds. The
folder holds symbolic links, so it costs nothing and ages with the wheel.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bireme.errors import ServerError

__all__ = ["BackendFolder", "Wheel", "assemble", "find_wheel"]

PACKAGE = "nvidia-pytriton"
_INSTALL = "pip install 'bireme[embedded]'"


@dataclass(frozen=True)
class Wheel:
    """An installed `nvidia-pytriton`: its version and its `tritonserver` folder."""

    version: str
    root: Path

    @property
    def command(self) -> Path:
        """The server binary."""
        return self.root / "bin" / "tritonserver"

    @property
    def caches(self) -> Path:
        """Response-cache libraries."""
        return self.root / "caches"

    @property
    def stubs(self) -> Path:
        """One folder per Python version, each with a `triton_python_backend_stub`."""
        return self.root / "python_backend_stubs"


@dataclass(frozen=True)
class BackendFolder:
    """The assembled folder: `backends` for --backend-directory, `libraries` for LD_LIBRARY_PATH."""

    backends: Path
    libraries: Path


def find_wheel() -> Wheel:
    """The installed wheel, checked against the running Python.

    Raises:
        ServerError: it is not installed, has no stub for this Python version, or numpy is too new for it.
    """
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise ServerError("tritonserver", "is not installed", f"{_INSTALL}, or use NVIDIA's container")
    wheel = Wheel(importlib.metadata.version(PACKAGE), Path(spec.origin).parent / "tritonserver")
    if not wheel.command.is_file():
        message = f"the wheel {PACKAGE} {wheel.version} holds no server binary at {wheel.command}"
        raise ServerError("tritonserver", message, f"{_INSTALL} --force-reinstall")
    _check_python(wheel)
    _check_numpy(importlib.metadata.version("numpy"))
    return wheel


def assemble(wheel: Wheel) -> BackendFolder:
    """Link the Python backend's parts into one folder; safe when several processes do it at once.

    The folder lies in the virtual environment, else in the user's cache, else in the temporary folder:
    the first that can be written. An existing one is checked and repaired.

    Raises:
        ServerError: no place can be written, or this Python has no shared libpython.
    """
    links = _links(wheel)
    key = f"triton-{wheel.version}-py{_minor()}-{hashlib.sha256(str(wheel.root).encode()).hexdigest()[:8]}"
    failures = []
    for base in _bases():
        folder = base / key
        try:
            _make_private(base)
            for name, target in links.items():
                _link(folder / name, target)
            (folder / "lib").mkdir(exist_ok=True)
        except OSError as error:
            failures.append(f"{base} ({error.strerror or error})")
            continue
        return BackendFolder(backends=folder / "backends", libraries=folder / "lib")
    hint = "make one of them writable, or set XDG_CACHE_HOME to a folder that is"
    raise ServerError(
        "tritonserver", f"no folder to prepare its Python backend in: {', '.join(failures)}", hint
    )


def _links(wheel: Wheel) -> dict[str, Path]:
    backend = wheel.root / "backends" / "python"
    links = {f"backends/python/{name}": backend / name for name in _BACKEND_FILES}
    links["backends/python/triton_python_backend_stub"] = (
        wheel.stubs / _minor() / "triton_python_backend_stub"
    )
    library = _libpython()
    if library is not None:
        links[f"lib/{library.name}"] = library
    return links


_BACKEND_FILES = ("libtriton_python.so", "triton_python_backend_utils.py")


def _link(link: Path, target: Path) -> None:
    """Make `link` point to `target`: created beside and renamed over, so that no reader finds it absent."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    beside = link.with_name(f".{link.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    beside.replace(link)


def _bases(environ: Mapping[str, str] = os.environ) -> Iterator[Path]:
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix) / "share" / "bireme"
    cache = environ.get("XDG_CACHE_HOME") or (environ.get("HOME") and str(Path(environ["HOME"]) / ".cache"))
    if cache:
        yield Path(cache) / "bireme"
    yield Path(tempfile.gettempdir()) / f"bireme-{os.getuid()}"


def _make_private(base: Path) -> None:
    """Create `base`, and refuse one that others could plant a library in (the temporary folder is shared)."""
    base.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = base.stat()
    if status.st_mode & 0o002 or status.st_uid not in (os.getuid(), 0):
        raise PermissionError(0, "can be written by others")
    if not os.access(base, os.W_OK):
        raise PermissionError(0, "is not writable")


def _check_python(wheel: Wheel) -> None:
    if (wheel.stubs / _minor() / "triton_python_backend_stub").is_file():
        return
    known = ", ".join(sorted((p.name for p in wheel.stubs.glob("3.*")), key=lambda v: int(v.split(".")[1])))
    message = f"is not supported by the embedded tritonserver, which has stubs for {known or 'none'}"
    raise ServerError(f"Python {_minor()}", message, "make the virtual environment with another Python")


def _check_numpy(version: str) -> None:
    # The stub was built against numpy 1: with numpy 2 it answers with empty outputs instead of an error.
    if int(version.split(".")[0]) >= 2:
        message = "is too new for the embedded tritonserver: models would return empty outputs"
        raise ServerError(f"numpy {version}", message, "pip install 'numpy<2'")


def _libpython() -> Path | None:
    """This Python's shared library; None if the loader finds it without help.

    Raises:
        ServerError: there is none.
    """
    name = f"libpython{_minor()}.so.1.0"
    places = [
        sysconfig.get_config_var("LIBDIR"),
        Path(sys.base_prefix) / "lib",
        Path(sys.base_prefix) / "lib64",
    ]
    for place in places:
        if place and (Path(place) / name).is_file():
            return Path(place) / name
    if ctypes.util.find_library(f"python{_minor()}") == name:
        return None
    message = f"has no shared library ({name}), which Triton's Python backend loads"
    hint = f"Debian and Ubuntu: apt install libpython{_minor()}; else a Python built with --enable-shared"
    raise ServerError(f"Python {_minor()}", message, hint)


def _minor() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
