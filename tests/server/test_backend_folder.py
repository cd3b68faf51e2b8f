"""The Python backend's folder: complete, repaired, shared, and refused where it could not work."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from bireme.errors import ServerError
from bireme.server import backend_folder as module
from bireme.server.backend_folder import BackendFolder, Wheel, assemble, find_wheel

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
PARTS = ("libtriton_python.so", "triton_python_backend_utils.py", "triton_python_backend_stub")


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    root = tmp_path / "site" / "pytriton" / "tritonserver"
    for file in (
        root / "backends" / "python" / PARTS[0],
        root / "backends" / "python" / PARTS[1],
        root / "python_backend_stubs" / MINOR / PARTS[2],
        root / "bin" / "tritonserver",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    return Wheel("9.9", root)


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    places = [tmp_path / "venv", tmp_path / "cache"]
    monkeypatch.setattr(module, "_bases", lambda: iter(places))
    return places


def _contents(folder: BackendFolder) -> dict[str, str]:
    return {part: (folder.backends / "python" / part).read_text() for part in PARTS}


def test_all_parts_lie_side_by_side(wheel: Wheel, bases: list[Path]) -> None:
    folder = assemble(wheel)
    assert folder.backends.is_relative_to(bases[0])
    assert _contents(folder) == {part: part for part in PARTS}


def test_a_second_call_changes_nothing(wheel: Wheel, bases: list[Path]) -> None:
    def state(folder: BackendFolder) -> dict[str, int]:
        return {part: (folder.backends / "python" / part).lstat().st_ino for part in PARTS}

    before = state(assemble(wheel))
    assert state(assemble(wheel)) == before


def test_a_damaged_folder_is_repaired(wheel: Wheel, bases: list[Path]) -> None:
    python = assemble(wheel).backends / "python"
    (python / PARTS[0]).unlink()
    (python / PARTS[1]).unlink()
    (python / PARTS[1]).write_text("no link")
    (python / PARTS[2]).unlink()
    (python / PARTS[2]).symlink_to("/nowhere")
    assert _contents(assemble(wheel)) == {part: part for part in PARTS}


def test_two_wheels_have_two_folders(wheel: Wheel, bases: list[Path], tmp_path: Path) -> None:
    other = Wheel(wheel.version, tmp_path / "elsewhere")
    assert assemble(other).backends != assemble(wheel).backends


def _assemble_in(wheel: Wheel, base: Path) -> dict[str, str]:
    module._bases = lambda: iter([base])  # type: ignore[assignment]
    return _contents(assemble(wheel))


def test_many_processes_at_once(wheel: Wheel, tmp_path: Path) -> None:
    with ProcessPoolExecutor(6, mp_context=get_context("fork")) as pool:
        results = list(pool.map(_assemble_in, [wheel] * 60, [tmp_path / f"base{i // 6}" for i in range(60)]))
    assert results == [{part: part for part in PARTS}] * 60
    assert not list(tmp_path.rglob(".*"))  # nothing temporary stays


def test_the_next_place_is_used_where_one_cannot_be_written(wheel: Wheel, bases: list[Path]) -> None:
    bases[0].write_text("a file where the folder should be")
    assert assemble(wheel).backends.is_relative_to(bases[1])


def test_a_folder_that_others_can_write_is_not_trusted(wheel: Wheel, bases: list[Path]) -> None:
    bases[0].mkdir()
    bases[0].chmod(0o777)
    assert assemble(wheel).backends.is_relative_to(bases[1])


def test_no_place_at_all_is_an_error_that_lists_them(wheel: Wheel, bases: list[Path]) -> None:
    for base in bases:
        base.write_text("")
    with pytest.raises(ServerError, match=f"{bases[0]}.*{bases[1]}.*XDG_CACHE_HOME"):
        assemble(wheel)


def test_places_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert [base.name for base in module._bases({})] == [f"bireme-{os.getuid()}"]
    assert next(module._bases({"HOME": "/h"})) == Path("/h/.cache/bireme")
    assert next(module._bases({"HOME": "/h", "XDG_CACHE_HOME": "/c"})) == Path("/c/bireme")


def test_the_installed_wheel_works_with_this_python() -> None:
    wheel = find_wheel()
    folder = assemble(wheel)
    assert all((folder.backends / "python" / part).is_file() for part in PARTS)
    assert os.access(folder.backends / "python" / PARTS[2], os.X_OK)


def test_wheel_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=r"not installed \(pip install 'bireme\[embedded\]'"):
        find_wheel()


def test_python_without_a_stub(wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel.stubs / "3.9").mkdir()
    (wheel.stubs / "3.10").mkdir(exist_ok=True)
    monkeypatch.setattr(module, "_minor", lambda: "3.77")
    with pytest.raises(ServerError, match=r"Python 3\.77: is not supported .* 3\.9, 3\.10"):
        module._check_python(wheel)


def test_numpy_2_is_refused() -> None:
    module._check_numpy("1.26.4")
    with pytest.raises(ServerError, match=r"numpy 2\.1\.0: is too new .*pip install 'numpy<2'"):
        module._check_numpy("2.1.0")


def test_python_without_a_shared_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sysconfig, "get_config_var", lambda name: None)
    monkeypatch.setattr(sys, "base_prefix", "/nowhere")
    monkeypatch.setattr(module.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(ServerError, match=rf"libpython{MINOR}\.so\.1\.0.*apt install libpython{MINOR}"):
        module._libpython()
    monkeypatch.setattr(module.ctypes.util, "find_library", lambda name: f"libpython{MINOR}.so.1.0")
    assert module._libpython() is None  # the loader knows it
