"""Pure part: from the kernel's sources to the commands that compile them, and to the build's id."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "ARCHITECTURES",
    "BUILD_UNIT",
    "CompileCommands",
    "build_id",
    "build_unit",
    "compile_commands",
    "host_architecture",
    "is_sealed",
    "library_name",
    "sealed",
    "units",
]

ARCHITECTURES = ("x86_64", "aarch64")
_SPELLINGS = {"amd64": "x86_64", "arm64": "aarch64"}

# No contraction to fused multiply-adds: results are numpy's, bit by bit. -ffast-math would set the loading
# process to flush denormals when linked, and is not used to compile either.
# No errno and no trapping of floating-point functions: nobody asks, and loops with them are not vectorised.
_COMMON = (
    *("-O3", "-fPIC", "-std=c11", "-fvisibility=hidden"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
# Nothing that differs between equal builds: no symbols with paths, no id of the linker's own.
_LINK = ("-shared", "-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack")
_LIBRARIES = ("-lm",)

_AVX2 = ("-mavx2", "-mf16c", "-mfma")
# The instruction sets of x86-64-v4 one by one: `-march=x86-64-v4` is unknown to gcc before 11.
_AVX512 = (
    *_AVX2,
    *("-mbmi", "-mbmi2", "-mlzcnt", "-mmovbe"),
    *("-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl"),
    "-mprefer-vector-width=512",  # a row of 16 numbers in one register
)
_VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"baseline": (), "avx2": _AVX2, "avx512": _AVX512},
    "aarch64": {"baseline": ()},  # NEON is part of every aarch64
}
# Compiled once for each variant, with -DVARIANT=…; all other sources once, with the baseline's flags.
_BY_VARIANT = ("rows.c",)

BUILD_UNIT = "build_id.c"
"""Name of the one source that is not written by hand: it holds the build's id."""


@dataclass(frozen=True)
class CompileCommands:
    """Commands in the order to run them, in a folder that holds the sources.

    Args:
        compile: one command an object file; they do not depend on each other.
        link: the last command.
        output: the file it makes.
    """

    compile: tuple[tuple[str, ...], ...]
    link: tuple[str, ...]
    output: str


def host_architecture() -> str:
    """The architecture of this machine, as compilers spell it; perhaps none of `ARCHITECTURES`."""
    machine = platform.machine().lower()
    return _SPELLINGS.get(machine, machine)


def library_name(arch: str) -> str:
    """File name of the library for one architecture."""
    return f"libbireme-{arch}.so"


def units(sources: Iterable[str], arch: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """(source, object file, flags of its own) of everything that is compiled, in a fixed order.

    Args:
        sources: names of the .c files.
        arch: one of `ARCHITECTURES`.
    """
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for name in sorted(sources):
        stem = name.removesuffix(".c")
        if name in _BY_VARIANT:
            found += [
                (name, f"{stem}_{variant}.o", (f"-DVARIANT={variant}", *flags))
                for variant, flags in _VARIANTS[arch].items()
            ]
        else:
            found.append((name, f"{stem}.o", ()))
    return found


def compile_commands(
    compiler: Sequence[str],
    arch: str,
    sources: Iterable[str],
    warnings: Sequence[str] = (),
    executable: str = "",
) -> CompileCommands:
    """What to run to turn the sources into the library, or into a program.

    Args:
        compiler: its command, with what selects the target.
        arch: one of `ARCHITECTURES`.
        sources: names of the .c files, relative to the folder the commands run in.
        warnings: further flags for every source, for example `-Werror`.
        executable: make a program of this name (one of the sources has a `main`), not a library.
    """
    parts = units(sources, arch)
    compile_ = tuple(
        (*compiler, *_COMMON, *warnings, *flags, "-c", source, "-o", result)
        for source, result, flags in parts
    )
    output = executable or library_name(arch)
    kind = () if executable else _LINK
    objects = tuple(result for _, result, _ in parts)
    return CompileCommands(compile_, (*compiler, *kind, *objects, *_LIBRARIES, "-o", output), output)


def build_id(files: Mapping[str, bytes], arch: str) -> str:
    """A mark of what a library is made from: it changes with any source or flag, not with the compiler.

    Args:
        files: name → content of all .c and .h files.
        arch: one of `ARCHITECTURES`.

    Returns:
        `bireme-build:<architecture>:<16 hex digits>`, to be found as such among the library's bytes.
    """
    commands = compile_commands((), arch, [name for name in files if name.endswith(".c")])
    digest = hashlib.sha256(repr(commands).encode())
    for name, content in sorted(files.items()):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return f"bireme-build:{arch}:{digest.hexdigest()[:16]}"


def build_unit(mark: str) -> bytes:
    """The C source that compiles a build id in."""
    return (
        "const char *bireme_build(void);\n"
        '__attribute__((visibility("default"))) const char *bireme_build(void) {\n'
        f'    return "{mark}";\n'
        "}\n"
    ).encode()


def sealed(content: bytes) -> bytes:
    """A library with its digest behind, by which the runtime knows a damaged one (library.py there)."""
    return content + b"bireme-sha256:" + hashlib.sha256(content).hexdigest().encode()


def is_sealed(content: bytes) -> bool:
    """Whether these bytes are as `sealed` gave them."""
    return sealed(content.rpartition(b"bireme-sha256:")[0]) == content
