"""What lies where the kernel's library should be: never a crash, one sentence for the log, numpy goes on."""

from __future__ import annotations

import _ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bireme_runtime.library as library
from bireme.native.flags import is_sealed, sealed
from bireme_runtime.library import CHOICE, is_whole, library_file, load

NATIVE = Path(library.__file__).parent / "native"
needs_kernel = pytest.mark.skipif(load()[0] is None, reason=load()[1])


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOICE, raising=False)


def _put(folder: Path, content: bytes) -> None:
    (folder / library_file()).write_bytes(content)


@needs_kernel
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:1000],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2] + bytes(len(content) - len(content) // 2),
        lambda content: content.replace(b"bireme_run", b"bireme_rum"),
    ],
    ids=["empty", "head", "half", "all but a byte", "zeros from the half on", "a bit"],
)
def test_a_damaged_library_is_not_loaded(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    _put(tmp_path, damage((NATIVE / library_file()).read_bytes()))
    # In a process of its own: the dynamic linker dies of the halves.
    code = (
        "import sys; from pathlib import Path; from bireme_runtime.library import load;"
        "print(*load(Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    wanted = f"None numpy kernels: {library_file()} is damaged or not ours; `bireme build` makes it anew"
    assert done.stdout.strip() == wanted


def test_no_library_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    assert load(tmp_path) == (
        None,
        f"numpy kernels: there is no {library_file()}; `bireme build` makes it where a C compiler is",
    )
    (tmp_path / library_file()).mkdir()
    assert load(tmp_path) == (None, f"numpy kernels: {library_file()} cannot be read (Is a directory)")


def test_what_the_dynamic_linker_refuses(tmp_path: Path) -> None:
    _put(tmp_path, sealed(b"\x7fELF" + bytes(999)))
    found, about = load(tmp_path)
    assert found is None
    assert about.startswith(f"numpy kernels: {library_file()} cannot be loaded (")


@needs_kernel
def test_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put(tmp_path, (NATIVE / library_file()).read_bytes())
    monkeypatch.setattr(library, "ABI", 77)
    assert load(tmp_path)[0] is None
    assert load(tmp_path)[1].endswith(" of version 1, this runtime of 77")


def test_somebody_elses_library(tmp_path: Path) -> None:
    _put(tmp_path, sealed(Path(_ctypes.__file__).read_bytes()))
    found, about = load(tmp_path)
    assert found is None
    assert about.startswith(f"numpy kernels: {library_file()} cannot be loaded (")
    assert "bireme_abi" in about


@needs_kernel
def test_a_choice_that_this_processor_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load()[1]
    monkeypatch.setenv(CHOICE, "sse9")
    assert load()[0] is not None
    assert load()[1] == f"{plain}; BIREME_KERNEL='sse9' names nothing that this processor runs"
    monkeypatch.setenv(CHOICE, "baseline")
    assert load()[1] == "C kernel, variant baseline"
    monkeypatch.setenv(CHOICE, "numpy")
    assert load() == (None, "numpy kernels, as BIREME_KERNEL says")


def test_the_seal_that_the_build_writes_is_the_one_that_the_runtime_reads() -> None:
    for content in (b"", b"abc", sealed(b"abc")):
        assert is_whole(sealed(content))
        assert is_sealed(sealed(content))
        assert not is_whole(sealed(content)[:-1])
        assert not is_sealed(b"x" + sealed(content))
        assert not is_whole(b"x" + sealed(content))
