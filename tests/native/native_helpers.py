"""Small sources to make libraries of, and which tools are there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import bireme_runtime
from bireme.native.flags import build_id, host_architecture, library_name, sealed
from bireme.native.library import read_sources

HERE = Path(__file__).parent
NATIVE = Path(bireme_runtime.__file__).parent / "native"
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
SYSTEM = Path("/usr/aarch64-linux-gnu")
ZIG = importlib.util.find_spec("ziglang") is not None or shutil.which("zig") is not None


def tiny_files() -> dict[str, bytes]:
    """A kernel of one function; `cpu.h` is the real one."""
    files = {path.name: path.read_bytes() for path in sorted((HERE / "tiny").glob("*.[ch]"))}
    return files | {"cpu.h": (NATIVE / "cpu.h").read_bytes()}


def cannot_run(arch: str) -> str:
    """Why a program of this architecture cannot be run here; empty if it can."""
    if arch == host_architecture():
        return ""
    if arch == "aarch64" and QEMU and SYSTEM.is_dir():
        return ""
    return f"nothing here runs {arch} programs; apt-get install qemu-user-static libc6-arm64-cross"


def run_program(content: bytes, folder: Path, arch: str, **environment: str) -> str:
    """Run a program, another architecture's under qemu; what it printed.

    Raises:
        AssertionError: it failed; with what it printed.
    """
    path = folder / f"program-{arch}"
    path.write_bytes(content)
    path.chmod(0o755)
    emulated = [] if arch == host_architecture() else [str(QEMU), "-L", str(SYSTEM)]
    done = subprocess.run(
        [*emulated, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def put_library(folder: Path, arch: str) -> bytes:
    """A file that passes for the up-to-date library of the sources in a folder, without a compiler."""
    machine = {"x86_64": 62, "aarch64": 183}[arch]
    head = b"\x7fELF\x02\x01".ljust(18, b"\0") + machine.to_bytes(2, "little")
    content = sealed(head.ljust(64, b"\0") + build_id(read_sources(folder), arch).encode() + b"\0")
    (folder / library_name(arch)).write_bytes(content)
    return content
