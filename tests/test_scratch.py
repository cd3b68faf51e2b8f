"""The folder for a build's large files: where it lies, that it goes, that builds leave each other's alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bireme import scratch
from bireme.errors import EmitError
from bireme.scratch import scratch_for


def test_it_lies_beside_the_repository_and_goes(tmp_path: Path) -> None:
    with scratch_for(tmp_path / "a" / "b" / "repository") as folder:
        assert folder.parent == tmp_path
        assert not (tmp_path / "a").exists()
        (folder / "file").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_it_goes_after_an_error(tmp_path: Path) -> None:
    def interrupted() -> None:
        with scratch_for(tmp_path / "repository") as folder:
            (folder / "file").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_two_builds_at_once_have_one_each(tmp_path: Path) -> None:
    with scratch_for(tmp_path / "repository") as first:
        with scratch_for(tmp_path / "repository") as second:
            assert first != second
            assert first.is_dir()
        assert first.is_dir()


def test_what_a_killed_build_left_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from bireme.scratch import scratch_for\n"
        "with scratch_for(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'arena').write_bytes(b'x'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "repository")], check=False)
    (left,) = tmp_path.iterdir()
    with scratch_for(tmp_path / "repository") as folder:
        assert not left.exists()
        assert list(tmp_path.iterdir()) == [folder]


def test_a_repository_that_is_a_mount_of_its_own_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    stat = Path.stat

    def other_device(path: Path, **kwargs: bool) -> os.stat_result:
        found = stat(path, **kwargs)
        values = list(found)
        values[2] += 1
        return os.stat_result(values) if path == repository else found

    monkeypatch.setattr(Path, "stat", other_device)
    assert scratch._place(repository) == repository


def test_where_nothing_can_be_written_the_temporary_folder_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(elsewhere))
    monkeypatch.setattr(scratch, "_place", lambda repository: tmp_path / "forbidden")
    with scratch_for(tmp_path / "repository") as folder:
        assert folder.parent == elsewhere
    elsewhere.rmdir()
    with pytest.raises(EmitError, match="cannot be written"), scratch_for(tmp_path / "repository"):
        pass
