"""Compiled programs that check fixed values: every variant of this machine, and aarch64 under qemu."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_helpers import HERE, NATIVE, ZIG, cannot_run, run_program, tiny_files

from bireme.native.compilers import Compiler, compilers_for
from bireme.native.flags import BUILD_UNIT, build_unit, host_architecture
from bireme.native.library import Library, compile_sources, read_sources

WARNINGS = ("-Wall", "-Wextra", "-Werror")
MARK = "bireme-build:test"


def compilers(arch: str) -> list[object]:
    found = [pytest.param(arch, compiler, id=f"{arch}-{compiler.name}") for compiler in compilers_for(arch)]
    nothing = pytest.mark.skip(reason=f"no C compiler for {arch} here; pip install 'bireme[cross]'")
    return found or [pytest.param(arch, None, id=arch, marks=nothing)]


def variants(arch: str) -> set[str]:
    """What this machine's processor can run, in the words of /proc/cpuinfo."""
    if arch != "x86_64" or host_architecture() != "x86_64":
        return {"baseline"}
    line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    flags = set(line.split())
    found = {"baseline"}
    if {"avx2", "f16c", "fma"} <= flags:
        found.add("avx2")
        v4 = {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl", "bmi1", "bmi2", "abm", "movbe"}
        if v4 <= flags:
            found.add("avx512")
    return found


@pytest.mark.parametrize(("arch", "compiler"), compilers("x86_64") + compilers("aarch64"))
def test_every_compiler_and_variant_gives_the_values_worked_out(
    arch: str, compiler: Compiler, tmp_path: Path
):
    if reason := cannot_run(arch):
        pytest.skip(reason)
    files = tiny_files() | {
        "selftest.c": (HERE / "tiny_selftest.c").read_bytes(),
        BUILD_UNIT: build_unit(MARK),
    }
    program = compile_sources(compiler, arch, files, WARNINGS, executable="selftest")
    known = variants(arch)
    best = next(name for name in ("avx512", "avx2", "baseline") if name in known)
    assert run_program(program, tmp_path, arch) == f"{best} {MARK}"
    for name in ("baseline", "avx2", "avx512"):
        chosen = name if name in known else best
        assert run_program(program, tmp_path, arch, BIREME_KERNEL=name) == f"{chosen} {MARK}"


@pytest.mark.skipif(not ZIG, reason="ziglang is not installed; pip install 'bireme[cross]'")
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_zig_makes_libraries_for_old_images_with_the_c_library_s_own_functions(arch: str):
    (zig,) = [compiler for compiler in compilers_for(arch) if "zig" in compiler.name]
    library = Library(arch, compile_sources(zig, arch, tiny_files()))
    assert library.glibc == (2, 27)  # logf's
    assert b"\0logf\0" in library.content  # a name to be resolved when it is loaded
    assert len(library.content) < 50_000


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "compiler"), compilers("x86_64") + compilers("aarch64"))
def test_the_kernel_gives_fixed_values_in_every_variant(arch: str, compiler: Compiler, tmp_path: Path):
    if reason := cannot_run(arch):
        pytest.skip(reason)
    files = read_sources(NATIVE) | {"kernel_selftest.c": (HERE / "kernel_selftest.c").read_bytes()}
    program = compile_sources(compiler, arch, files, WARNINGS, executable="selftest")
    for name in sorted(variants(arch)):
        assert run_program(program, tmp_path, arch, BIREME_KERNEL=name) == name
