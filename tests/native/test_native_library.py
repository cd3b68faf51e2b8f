"""The library is made by what compiler there is, whole or not at all, and anew when its sources change."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from native_helpers import HERE, tiny_files

from bireme.errors import EmitError
from bireme.native import compilers, library
from bireme.native.flags import build_id, host_architecture, library_name
from bireme.native.library import Library, library_for, read_sources

ARCH = host_architecture()
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[ARCH]


def has_compiler() -> bool:
    return next(compilers.compilers_for(ARCH), None) is not None


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler for this machine")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "native"
    folder.mkdir()
    for name, content in tiny_files().items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH; nothing in it, and no ziglang."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    return folder


def put_compiler(folder: Path, script: str, name: str = "cc", target: str = f"{ARCH}-linux-gnu") -> Path:
    path = folder / name
    path.write_text(f'#!/bin/sh\nif [ "$1" = -dumpmachine ]; then echo {target}; exit; fi\n{script}\n')
    path.chmod(0o755)
    return path


@needs_compiler
def test_it_is_made_once_and_has_its_build_id(sources):
    told: list[str] = []
    made = library_for(ARCH, sources, told.append)
    assert len(told) == 1
    assert made.made_by in told[0]
    assert made.seconds > 0
    again = library_for(ARCH, sources, told.append)
    assert again == Library(ARCH, made.content)
    assert len(told) == 1
    path = sources / library_name(ARCH)
    assert path.read_bytes() == made.content
    assert path.stat().st_mode & 0o777 == 0o644
    loaded = ctypes.CDLL(str(path))
    loaded.bireme_build.restype = ctypes.c_char_p
    assert loaded.bireme_build().decode() == build_id(read_sources(sources), ARCH)
    assert loaded.bireme_abi() == 7
    assert "up to date" in again.summary()
    assert f"compiled by {made.made_by} in" in made.summary()


@needs_compiler
def test_equal_sources_give_equal_bytes_wherever_they_are_compiled(sources, tmp_path, monkeypatch):
    first = library_for(ARCH, sources)
    (tmp_path / "a" / "longer").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a" / "longer"))
    assert library_for(ARCH, sources, force=True).content == first.content
    assert list((tmp_path / "a" / "longer").iterdir()) == []  # nothing is left there


@needs_compiler
@pytest.mark.parametrize("name", ["rows.c", "rows.h"])
def test_a_stale_library_is_made_anew(sources, name):
    old = library_for(ARCH, sources)
    (sources / name).write_bytes((sources / name).read_bytes() + b"\n/* changed */\n")
    new = library_for(ARCH, sources)
    assert new.made_by
    assert build_id(read_sources(sources), ARCH).encode() in new.content
    assert build_id(read_sources(sources), ARCH).encode() not in old.content


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:100],
        lambda content: b"",
        lambda content: b"?" * 999,
        lambda content: content[:-1],
        lambda content: content[:-500] + bytes(500),
        lambda content: content.replace(b"bireme_abi", b"bireme_abj"),
    ],
)
def test_a_damaged_library_is_made_anew(sources, damage):
    good = library_for(ARCH, sources).content
    (sources / library_name(ARCH)).write_bytes(damage(good))
    assert library_for(ARCH, sources).content == good
    assert (sources / library_name(ARCH)).read_bytes() == good


@needs_compiler
def test_one_of_another_architecture_is_not_taken_for_it(sources):
    made = library_for(ARCH, sources)
    mark = build_id(read_sources(sources), OTHER)
    assert library._faults(made.content, OTHER, mark) == "it is for another architecture"


@needs_compiler
def test_a_folder_that_cannot_be_written_is_no_fault(sources, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(library, "_replace", refuse)
    assert library_for(ARCH, sources).made_by
    assert not (sources / library_name(ARCH)).exists()


@needs_compiler
def test_processes_that_build_at_once_leave_one_whole_library_and_nothing_else(sources):
    before = {path.name for path in sources.iterdir()}
    code = (
        "import sys; from pathlib import Path; from bireme.native.library import library_for;"
        "print(library_for(sys.argv[1], Path(sys.argv[2])).made_by)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, ARCH, str(sources)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=120)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert sorted(map(bool, outputs)) == [False, False, False, True]  # the others waited for the first
    assert {path.name for path in sources.iterdir()} - before == {library_name(ARCH)}
    assert not library_for(ARCH, sources).made_by


@needs_compiler
def test_readers_see_the_old_or_the_new_library_never_a_part(sources):
    whole = {library_for(ARCH, sources).content}
    path, seen, done = sources / library_name(ARCH), set(), threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    (sources / "rows.c").write_bytes((sources / "rows.c").read_bytes() + b"\n")
    whole.add(library_for(ARCH, sources).content)
    done.set()
    reader.join()
    assert seen <= whole


def test_without_a_compiler_one_sentence_says_what_that_means_and_what_helps(sources, bare):
    with pytest.raises(EmitError) as caught:
        library_for(ARCH, sources)
    assert str(caught.value).startswith(f"kernel for {ARCH}: there is no C compiler for it")
    assert "numpy" in caught.value.hint
    assert "pip install 'bireme[cross]'" in caught.value.hint
    assert "gcc" in caught.value.hint
    with pytest.raises(EmitError) as caught:
        library_for(OTHER, sources)
    assert "apt-get" not in caught.value.hint  # this machine's gcc would not help
    assert "pip install 'bireme[cross]'" in caught.value.hint


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'rows.c:1: fatal error: no math.h' >&2; exit 1",
            r"cc: cannot compile .*exit status 1.*no math.h",
        ),
        ("exit 3", "exit status 3.*no message"),
        ("exit 0", "cc: reports success but wrote no library"),
        ('for last; do :; done; echo junk > "$last"', "makes no library.*no ELF file"),
    ],
)
def test_a_broken_compiler_gives_one_clear_message(sources, bare, script, message):
    put_compiler(bare, script)
    with pytest.raises(EmitError, match=message) as caught:
        library_for(ARCH, sources)
    assert "numpy" in caught.value.hint
    assert not (sources / library_name(ARCH)).exists()


@needs_compiler
def test_after_a_broken_compiler_the_next_one_is_tried(sources, bare, monkeypatch, tmp_path):
    good = next(iter(compilers.compilers_for(ARCH)), None)
    assert good is None  # PATH is bare
    monkeypatch.undo()
    good = next(compilers.compilers_for(ARCH))
    put_compiler(bare, "exit 1")
    broken = compilers.Compiler("broken", (str(bare / "cc"),))
    monkeypatch.setattr(library, "compilers_for", lambda arch: iter([broken, good]))
    assert library_for(ARCH, sources).made_by == good.name


def test_cc_is_taken_at_its_word_and_no_other_compiler_takes_its_place(sources, bare, monkeypatch):
    put_compiler(bare, "exit 0")
    mine = put_compiler(bare, "echo 'error: mine is broken' >&2; exit 1", name="mine")
    monkeypatch.setenv("CC", f"{mine} -O1")
    found = list(compilers.compilers_for(ARCH))
    assert [compiler.command for compiler in found] == [(str(mine), "-O1")]
    with pytest.raises(EmitError, match=r"\$CC \(.*mine -O1\): cannot compile.*mine is broken") as caught:
        library_for(ARCH, sources)
    assert "unset CC" in caught.value.hint
    monkeypatch.setenv("CC", str(bare / "nowhere"))
    with pytest.raises(EmitError, match=r"\$CC .*cannot be started: No such file"):
        library_for(ARCH, sources)


def test_a_compiler_for_another_machine_is_not_asked(bare, monkeypatch):
    put_compiler(bare, "exit 0", target=f"{OTHER}-linux-gnu")
    put_compiler(bare, "exit 0", name="gcc", target=f"{ARCH}-alpine-linux-musl")
    put_compiler(bare, "exit 0", name="clang", target=f"{ARCH}-apple-darwin23")
    put_compiler(bare, "exit 0", name=f"{OTHER}-linux-gnu-gcc", target=f"{OTHER}-linux-gnu")
    assert list(compilers.compilers_for(ARCH)) == []
    assert [compiler.name for compiler in compilers.compilers_for(OTHER)] == ["cc", f"{OTHER}-linux-gnu-gcc"]
    monkeypatch.setenv("CC", str(put_compiler(bare, "exit 0", name="mine")))
    assert next(compiler.name for compiler in compilers.compilers_for(OTHER)) == "cc"  # $CC is not for it


def test_ziglang_comes_last_and_for_every_architecture(bare, monkeypatch):
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: object())
    put_compiler(bare, "exit 0")
    assert [compiler.name for compiler in compilers.compilers_for(ARCH)] == ["cc", "ziglang"]
    (zig,) = compilers.compilers_for(OTHER)
    assert zig.command[-1] == f"{OTHER}-linux-gnu.2.28"


def test_an_architecture_without_a_kernel_and_a_folder_without_sources(tmp_path):
    with pytest.raises(EmitError, match=r"architecture 'ppc64le': has no kernel.*x86_64, aarch64"):
        library_for("ppc64le", tmp_path)
    with pytest.raises(EmitError, match="holds no C sources"):
        library_for(ARCH, tmp_path)


def test_the_oldest_c_library_is_read_from_the_file():
    content = b"\0GLIBC_2.2.5\0GLIBC_2.14\0GLIBC_2.9\0"
    assert Library("x86_64", content).glibc == (2, 14)
    assert "older images" not in Library("x86_64", content).summary()
    assert "older images run without it" in Library("x86_64", b"GLIBC_2.38").summary()


def test_the_small_sources_are_here():
    assert (HERE / "tiny" / "rows.c").is_file()
    assert os.access(HERE / "tiny_selftest.c", os.R_OK)
