"""Makes the kernel's library, keeps it beside its sources, and makes it anew when they change."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bireme.errors import EmitError
from bireme.native.compilers import Compiler, compilers_for
from bireme.native.flags import (
    ARCHITECTURES,
    BUILD_UNIT,
    CompileCommands,
    build_id,
    build_unit,
    compile_commands,
    host_architecture,
    is_sealed,
    library_name,
    sealed,
)

__all__ = ["Library", "compile_sources", "library_for", "native_folder", "read_sources"]

_SECONDS = 300
# e_machine of the ELF header.
_MACHINES = {"x86_64": 62, "aarch64": 183}
_COST = "Without the library preprocess runs its numpy kernels: equal scores, more CPU time a request."
# Ubuntu 20.04, the oldest base of Triton's images that CUDA 12 came with.
_OLDEST_GLIBC = (2, 31)


@dataclass(frozen=True)
class Library:
    """A library for one architecture.

    Args:
        arch: what it is for.
        content: the file.
        made_by: the compiler, if it was made just now, else empty.
        seconds: what that took.
    """

    arch: str
    content: bytes
    made_by: str = ""
    seconds: float = 0.0

    @property
    def glibc(self) -> tuple[int, int]:
        """The oldest C library that it can be loaded with; (0, 0): any."""
        found = re.findall(rb"GLIBC_(\d+)\.(\d+)", self.content)
        return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))

    def summary(self) -> str:
        """One line for people."""
        how = f"compiled by {self.made_by} in {self.seconds:.1f} s" if self.made_by else "up to date"
        needs = "glibc {}.{}".format(*self.glibc)
        if self.glibc > _OLDEST_GLIBC:
            needs += " (older images run without it; the compiler of PyPI's ziglang makes one for all)"
        return f"{library_name(self.arch)}: {how}, {len(self.content) / 1024:.0f} KB, needs {needs}"


def native_folder() -> Path:
    """Where the kernel's sources and libraries lie."""
    import bireme_runtime

    return Path(bireme_runtime.__file__).parent / "native"


def read_sources(folder: Path) -> dict[str, bytes]:
    """Name → content of the .c and .h files."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.[ch]"))}


def library_for(
    arch: str,
    sources: Path,
    progress: Callable[[str], None] = lambda _: None,
    force: bool = False,
) -> Library:
    """The library of these sources: the one beside them, or, if that is stale or missing, a new one.

    Args:
        arch: one of `ARCHITECTURES`.
        sources: the folder of the sources, where finished libraries are kept, too. That it cannot be written
            is no fault: the library is then made again the next time.
        progress: called with one line before something is compiled.
        force: make it even if it is there.

    Raises:
        EmitError: the architecture is unknown, or no compiler makes the library.
    """
    if arch not in ARCHITECTURES:
        hint = f"{_COST} Known are: {', '.join(ARCHITECTURES)}"
        raise EmitError(f"architecture '{arch}'", "has no kernel", hint)
    files = read_sources(sources)
    if not any(name.endswith(".c") for name in files):
        raise EmitError(str(sources), "holds no C sources", f"{_COST} To get it: reinstall bireme")
    mark = build_id(files, arch)
    place = sources / library_name(arch)
    found = None if force else _kept(place, arch, mark)
    if found is not None:
        return found
    with _one_at_a_time(sources):
        # Whoever had the lock before may have made it.
        found = None if force else _kept(place, arch, mark)
        if found is not None:
            return found
        library = _make(files, arch, mark, progress)
        with contextlib.suppress(OSError):
            _replace(place, library.content)
    return library


def _kept(place: Path, arch: str, mark: str) -> Library | None:
    """The library that is there, if it is of this build."""
    try:
        content = place.read_bytes()
    except OSError:
        return None
    return None if _faults(content, arch, mark) else Library(arch, content)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Others wait for this process instead of compiling the same; nothing more rests on the lock."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _make(files: dict[str, bytes], arch: str, mark: str, progress: Callable[[str], None]) -> Library:
    """Try one compiler after the other."""
    failures: list[EmitError] = []
    for compiler in compilers_for(arch):
        progress(f"compiling the kernel for {arch} with {compiler.name}")
        start = time.monotonic()
        try:
            content = sealed(compile_sources(compiler, arch, files | {BUILD_UNIT: build_unit(mark)}))
            fault = _faults(content, arch, mark)
            if fault:
                raise EmitError(compiler.name, f"makes no library for {arch}: {fault}")
        except EmitError as error:
            failures.append(error)
            continue
        return Library(arch, content, compiler.name, time.monotonic() - start)
    if failures:
        broken = failures[0]
        raise EmitError(broken.where, broken.message, f"{_COST} {_remedy(arch, broken.where)}")
    raise EmitError(f"kernel for {arch}", "there is no C compiler for it", f"{_COST} {_remedy(arch)}")


def _remedy(arch: str, broken: str = "") -> str:
    system = "apt-get install gcc libc6-dev" if arch == host_architecture() else ""
    ways = [system, "pip install 'bireme[cross]' (ziglang: compiles for x86_64 and aarch64)"]
    if broken.startswith("$CC"):
        ways.insert(0, "unset CC")
    return "To get it: " + ", or ".join(way for way in ways if way)


def compile_sources(
    compiler: Compiler,
    arch: str,
    files: dict[str, bytes],
    warnings: Iterable[str] = (),
    executable: str = "",
) -> bytes:
    """Compile in a folder of its own, gone afterwards.

    Args:
        compiler: for this architecture.
        arch: one of `ARCHITECTURES`.
        files: name → content of all .c and .h files.
        warnings: further flags for every source.
        executable: make a program, not a library.

    Returns:
        The library or program; equal input and compiler give equal bytes.

    Raises:
        EmitError: the compiler cannot be started, or fails; with the first error that it prints.
    """
    sources = [name for name in files if name.endswith(".c")]
    commands = compile_commands(compiler.command, arch, sources, tuple(warnings), executable)
    with tempfile.TemporaryDirectory(prefix="bireme-kernel-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return _run_all(compiler, commands, Path(folder))


def _run_all(compiler: Compiler, commands: CompileCommands, folder: Path) -> bytes:
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda command: _run(compiler, command, folder), commands.compile))
    _run(compiler, commands.link, folder)
    try:
        return (folder / commands.output).read_bytes()
    except OSError:
        raise EmitError(compiler.name, "reports success but wrote no library") from None


def _run(compiler: Compiler, command: tuple[str, ...], folder: Path) -> None:
    # The language of messages, and zig's cache beside the sources, not in the caller's folder.
    environment = os.environ | {"LC_ALL": "C", "ZIG_LOCAL_CACHE_DIR": str(folder / ".zig-cache")}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except OSError as error:
        raise EmitError(compiler.name, f"cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise EmitError(compiler.name, f"took longer than {_SECONDS} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")
        raise EmitError(compiler.name, f"cannot compile the kernel (exit status {done.returncode}): {said}")


def _faults(content: bytes, arch: str, mark: str) -> str:
    """Why these bytes are not the library of this architecture and build; empty if they are."""
    if len(content) < 64 or content[:6] != b"\x7fELF\x02\x01":
        return "it is no ELF file of 64 bits"
    if int.from_bytes(content[18:20], "little") != _MACHINES[arch]:
        return "it is for another architecture"
    if mark.encode() + b"\0" not in content:
        return "it is of another build"
    if not is_sealed(content):
        return "it is damaged"
    return ""


def _replace(place: Path, content: bytes) -> None:
    """Write a file whole or not at all; a process that has the old one loaded keeps it."""
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(0o644)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
