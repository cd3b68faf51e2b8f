"""Facts of the server and the software around it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bireme.doctor.facts import Allocator, Analyzer, Kernel, Python, Server
from bireme.doctor.facts_repository import Refusal
from bireme.errors import ServerError
from bireme.server.locate import Installation, locate
from bireme.server.preload import INSTALL, preload
from bireme_runtime import library

__all__ = ["PythonFound", "find_allocator", "find_analyzer", "find_kernel", "find_python", "find_server"]

#: Which Triton a release of nvidia-pytriton carries: the server itself says it in its log only.
_WHEELS = {"0.7.0": "2.51.0"}
_STUB = "triton_python_backend_stub"
_SECONDS = 5
_ASK = """
import importlib.metadata, importlib.util, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
names = [name for name in ("onnxruntime", "tensorrt") if importlib.util.find_spec(name)]
print(json.dumps(["%d.%d" % sys.version_info[:2], version("numpy"), version("tensorrt"), names]))
"""


@dataclass(frozen=True)
class PythonFound:
    """The server's Python, and its version of tensorrt; "": it has none."""

    facts: Python
    tensorrt: str


def find_server(environ: Mapping[str, str]) -> tuple[Server, Mapping[str, str]]:
    """The server that would be started, and the variables that it would get."""
    try:
        found = locate(environ=environ)
    except ServerError as error:
        return Server(refusal=Refusal(error.where, error.message, error.hint)), {}
    server = Server(found.kind, str(found.command), _version(found, environ), _stub(found))
    return server, found.environment


def _version(found: Installation, environ: Mapping[str, str]) -> str:
    if found.kind == "embedded":
        return _WHEELS.get(metadata.version("nvidia-pytriton"), "")
    beside = found.command.parent.parent / "TRITON_VERSION"
    if beside.is_file():
        return beside.read_text(encoding="utf-8", errors="replace").strip()
    # NVIDIA's images set it; a server that BIREME_TRITONSERVER names may be another one.
    return environ.get("TRITON_SERVER_VERSION", "") if found.kind == "system" else ""


def _stub(found: Installation) -> str:
    """Python minor that the stub was linked with."""
    folder = found.command.parent.parent / "backends"
    for flag in found.flags:
        name, _, value = flag.partition("=")
        folder = Path(value) if name == "--backend-directory" else folder
    try:
        content = (folder / "python" / _STUB).read_bytes()
    except OSError:
        return ""
    linked = re.search(rb"libpython(3\.\d+)", content)
    return linked[1].decode() if linked else ""


def find_python(environ: Mapping[str, str]) -> PythonFound:
    """The Python that a server with these variables takes, asked what it has."""
    command = shutil.which("python3", path=environ.get("PATH", os.defpath))
    if command is None:
        return PythonFound(Python("", "", "", frozenset()), "")
    # Isolated from PYTHONPATH, as the stub is.
    asked = [command, "-E", "-s", "-c", _ASK]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, timeout=_SECONDS, check=True, env={**environ}
        )
        minor, numpy, tensorrt, packages = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return PythonFound(Python(command, "", "", frozenset()), "")
    return PythonFound(Python(command, minor, numpy, frozenset(packages)), tensorrt)


def find_kernel() -> Kernel:
    """The copy in this installation, loaded."""
    loaded, about = library.load()
    return Kernel(loaded is not None, about)


def find_allocator(environ: Mapping[str, str]) -> Allocator:
    """What `bireme serve` would do."""
    try:
        found = preload(environ)
    except ServerError as error:
        return Allocator("", False, Refusal(error.where, error.message, error.hint))
    return Allocator(found.line, INSTALL in found.line)


def find_analyzer(environ: Mapping[str, str]) -> Analyzer:
    """The one that BIREME_PERF_ANALYZER names, on PATH, or beside this Python."""
    path = os.pathsep.join([environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    command = environ.get("BIREME_PERF_ANALYZER") or shutil.which("perf_analyzer", path=path) or ""
    try:
        placeholder = metadata.version("perf_analyzer") == "0.1.0"
    except metadata.PackageNotFoundError:
        placeholder = False
    return Analyzer(command, placeholder, _missing(command) if command else (), platform.libc_ver()[1])


def _missing(command: str) -> tuple[str, ...]:
    """What the loader does not find for a program: libraries, versions of glibc."""
    if not Path(command).is_file():
        return (command,)
    try:
        done = subprocess.run(["ldd", command], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ()
    return missing_in(done.stdout + done.stderr)


def missing_in(text: str) -> tuple[str, ...]:
    """What `ldd` says is missing. Pure."""
    libraries = re.findall(r"^\s*(\S+) => not found", text, re.MULTILINE)
    versions = re.findall(r"version [`'](GLIBC(?:XX)?_[\d.]+)' not found", text)
    return tuple(dict.fromkeys([*libraries, *versions]))
