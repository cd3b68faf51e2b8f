from __future__ import annotations

import pytest

from bireme.native.flags import (
    build_id,
    build_unit,
    compile_commands,
    host_architecture,
    library_name,
    units,
)


def test_only_rows_is_compiled_once_for_each_variant():
    found = units(["text.c", "rows.c", "dispatch.c"], "x86_64")
    assert [(source, made) for source, made, _ in found] == [
        ("dispatch.c", "dispatch.o"),
        ("rows.c", "rows_baseline.o"),
        ("rows.c", "rows_avx2.o"),
        ("rows.c", "rows_avx512.o"),
        ("text.c", "text.o"),
    ]
    flags = {made: own for _, made, own in found}
    assert flags["text.o"] == ()
    assert flags["rows_baseline.o"] == ("-DVARIANT=baseline",)
    assert flags["rows_avx2.o"] == ("-DVARIANT=avx2", "-mavx2", "-mf16c", "-mfma")
    assert "-mavx512bw" in flags["rows_avx512.o"]


def test_aarch64_has_the_baseline_alone():
    assert units(["rows.c"], "aarch64") == [("rows.c", "rows_baseline.o", ("-DVARIANT=baseline",))]


def test_every_source_is_compiled_without_contraction_and_nothing_with_fast_math():
    commands = compile_commands(("cc",), "x86_64", ["a.c", "rows.c"])
    assert len(commands.compile) == 4
    assert all("-ffp-contract=off" in command and "-O3" in command for command in commands.compile)
    assert not any("fast" in word for command in (*commands.compile, commands.link) for word in command)
    assert commands.link[:2] == ("cc", "-shared")
    assert commands.output == library_name("x86_64") == "libbireme-x86_64.so"
    assert set(commands.link) >= {"a.o", "rows_baseline.o", "rows_avx2.o", "rows_avx512.o", "-lm"}


def test_a_program_is_no_library_and_has_the_warnings_that_were_asked_for():
    commands = compile_commands(("cc", "-x"), "aarch64", ["a.c"], ("-Werror",), executable="run")
    assert "-shared" not in commands.link
    assert commands.output == "run"
    assert "-Werror" in commands.compile[0]
    assert commands.compile[0][:2] == ("cc", "-x")


def test_the_build_id_tells_sources_headers_names_and_architectures_apart():
    files = {"a.c": b"int a;", "a.h": b"int b;"}
    others = [
        {"a.c": b"int a; ", "a.h": b"int b;"},
        {"a.c": b"int a;", "a.h": b"int c;"},
        {"b.c": b"int a;", "a.h": b"int b;"},
        {"a.c": b"int a;"},
    ]
    marks = [build_id(given, "x86_64") for given in (files, *others)] + [build_id(files, "aarch64")]
    assert len(set(marks)) == len(marks)
    assert build_id(dict(reversed(files.items())), "x86_64") == marks[0]
    assert marks[0].startswith("bireme-build:x86_64:")
    assert marks[0].encode() in build_unit(marks[0])


def test_the_build_id_changes_with_the_flags(monkeypatch):
    from bireme.native import flags

    before = build_id({"a.c": b""}, "x86_64")
    monkeypatch.setattr(flags, "_COMMON", ("-O2",))
    assert build_id({"a.c": b""}, "x86_64") != before


@pytest.mark.parametrize(
    ("machine", "arch"),
    [("AMD64", "x86_64"), ("x86_64", "x86_64"), ("arm64", "aarch64"), ("ppc64le", "ppc64le")],
)
def test_machines_are_spelled_as_compilers_do(monkeypatch, machine, arch):
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert host_architecture() == arch
