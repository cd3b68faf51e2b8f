"""Whatever goes wrong during a build, the repository is what it was before."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from emitter_helpers import make_artifacts, make_contract, tree

from bireme.emitter import check_repository, emit, layout, swap
from bireme.errors import EmitError

Build = Callable[[str], None]


@pytest.fixture
def build(repository: Path) -> Build:
    """Build the same model with another vocabulary, for a target."""

    def run(target: str, **changes: object) -> None:
        contract = make_contract(target)
        files = {**make_artifacts(contract).files, "words.vocab": b"other\n"}
        emit(make_artifacts(contract, **{"files": files, **changes}), contract, repository)

    return run


@pytest.fixture(params=["empty", "cpu", "gpu"])
def before(repository: Path, request: pytest.FixtureRequest) -> dict[str, tuple[int, str]]:
    """The state of the repository that has to survive; beside ours there is always a foreign model."""
    (repository / "theirs" / "1").mkdir(parents=True)
    if request.param != "empty":
        contract = make_contract(request.param)
        emit(make_artifacts(contract), contract, repository)
    return tree(repository)


def assert_untouched(repository: Path, before: dict[str, tuple[int, str]]) -> None:
    assert tree(repository) == before
    assert [path.name for path in repository.parent.iterdir()] == ["models"]


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), EmitError),
        (EmitError("table users", "is damaged"), EmitError),
        (MemoryError(), MemoryError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_writer_that_fails_half_way(
    repository: Path,
    build: Build,
    before: dict[str, tuple[int, str]],
    raised: BaseException,
    seen: type[BaseException],
) -> None:
    def writer(path: Path) -> None:
        path.write_bytes(b"half")
        raise raised

    contract = make_contract("cpu")
    with pytest.raises(seen) as caught:
        build("cpu", files={**make_artifacts(contract).files, "arena_float32_8.bin": writer})
    assert_untouched(repository, before)
    if isinstance(raised, OSError):
        assert "arena_float32_8.bin" in str(caught.value)
        assert "No space left on device" in str(caught.value)


def test_a_writer_that_writes_nothing(
    repository: Path, build: Build, before: dict[str, tuple[int, str]]
) -> None:
    files = {**make_artifacts(make_contract()).files, "arena_float32_8.bin": lambda path: None}
    with pytest.raises(EmitError, match=r"arena_float32_8\.bin"):
        build("cpu", files=files)
    assert_untouched(repository, before)


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
@pytest.mark.parametrize("raised", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_each_single_move_may_fail(
    repository: Path,
    build: Build,
    before: dict[str, tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    raised: BaseException,
) -> None:
    """Fail at the first move, then at the second, … until a build gets through."""
    rename, failures = Path.rename, 0
    for allowed in range(20):
        moves = 0

        def failing(path: Path, to: Path, allowed: int = allowed) -> Path:
            nonlocal moves
            moves += 1
            if moves == allowed + 1:  # only this one: putting back must work
                raise raised
            return rename(path, to)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", failing)
            try:
                build(target)
            except (EmitError, KeyboardInterrupt):
                failures += 1
            else:
                break
        assert_untouched(repository, before)
    # At least: the note, and one move per new folder.
    assert failures >= 1 + (4 if target == "gpu" else 3)
    check_repository(repository, "shop", deep=True)
    assert (repository / "shop_preprocess/1/words.vocab").read_bytes() == b"other\n"


def test_a_build_killed_between_two_moves_is_undone_by_the_next(
    repository: Path, build: Build, before: dict[str, tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process runs no clean-up: leave everything lying and let the next build fail early."""
    rename = Path.rename

    def dying(path: Path, to: Path) -> Path:
        if to == repository / "shop_dnn":
            raise SystemExit
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying)
        patch.setattr(swap, "_roll_back", lambda folder, root: None)
        with pytest.raises(SystemExit):
            build("gpu")
    assert tree(repository) != before
    with pytest.raises(EmitError):
        build(
            "cpu", files={**make_artifacts(make_contract()).files, "arena_float32_8.bin": lambda path: None}
        )
    assert_untouched(repository, before)


def test_if_it_cannot_be_put_back_the_old_models_are_kept_and_named(
    repository: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("cpu")
    before = tree(repository)
    rename = Path.rename

    def broken(path: Path, to: Path) -> Path:
        if to == repository / "shop_dnn":
            raise OSError(errno.EROFS, "Read-only file system")
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", broken)
        with pytest.raises(EmitError, match=r"could not be put back .*Read-only.*old models are in"):
            build("cpu")
    with pytest.raises(MemoryError):  # any later build, even one that fails, puts them back
        build("cpu", files={**make_artifacts(make_contract()).files, "words.vocab": _raise_memory_error})
    assert_untouched(repository, before)


def _raise_memory_error(path: Path) -> None:
    raise MemoryError


def test_ctrl_c_during_the_moves_waits_for_their_end(
    repository: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("cpu")
    rename = Path.rename

    def interrupted(path: Path, to: Path) -> Path:
        if to == repository / "shop_dnn":
            signal.raise_signal(signal.SIGINT)
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build("gpu")
    check_repository(repository, "shop", deep=True)
    assert (repository / "shop_postprocess").exists()
    assert [path.name for path in repository.parent.iterdir()] == ["models"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_build_in_a_thread_works_as_well(repository: Path, build: Build) -> None:
    thread = threading.Thread(target=build, args=("cpu",))
    thread.start()
    thread.join()
    check_repository(repository, "shop", deep=True)


def test_a_second_build_is_refused_while_the_first_one_runs(repository: Path, build: Build) -> None:
    def writer(path: Path) -> None:
        with pytest.raises(EmitError, match="being written by another build"):
            build("cpu")
        path.write_bytes(b"arena")

    build("cpu", files={**make_artifacts(make_contract()).files, "arena_float32_8.bin": writer})
    check_repository(repository, "shop", deep=True)


@pytest.mark.parametrize("place", ["models", "models/deeper"])
def test_a_repository_that_cannot_be_a_folder(tmp_path: Path, place: str) -> None:
    (tmp_path / "models").write_text("a file")
    contract = make_contract()
    with pytest.raises(EmitError, match="a file is in the way of a folder"):
        emit(make_artifacts(contract), contract, tmp_path / place)


def test_a_repository_behind_a_symbolic_link_is_written_through_it(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "models").symlink_to(tmp_path / "disk")
    contract = make_contract()
    emit(make_artifacts(contract), contract, tmp_path / "models")
    check_repository(tmp_path / "disk", "shop", deep=True)
    assert (tmp_path / "models").is_symlink()


def test_a_mounted_repository_stages_inside_itself(
    repository: Path, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap.os, "access", lambda path, mode: False)
    seen: list[Path] = []

    def writer(path: Path) -> None:
        seen.extend(repository.iterdir())
        path.write_bytes(b"arena")

    build("cpu", files={**make_artifacts(make_contract()).files, "arena_float32_8.bin": writer})
    assert [path.name.startswith(".models.bireme-") for path in seen] == [True]
    assert {path.name for path in repository.iterdir()} == {"shop", "shop_dnn", "shop_preprocess"}


def test_a_real_kill_in_the_middle_of_a_build(repository: Path, build: Build) -> None:
    """No fake: a process that kills itself while a table is being written."""
    build("cpu")
    before = tree(repository)
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from bireme.emitter import emit, layout\n"
        "from emitter_helpers import make_artifacts, make_contract\n"
        "layout.model_source = lambda part: b''\n"
        "contract = make_contract()\n"
        "files = {**make_artifacts(contract).files, 'words.vocab': lambda path: os.kill(os.getpid(), 9)}\n"
        "emit(make_artifacts(contract, files=files), contract, Path(sys.argv[1]))\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", script, str(repository)], cwd=Path(__file__).parent, check=False, timeout=60
    )
    assert died.returncode == -signal.SIGKILL
    assert tree(repository) == before
    build("cpu")
    assert_untouched(repository, before)


def test_the_sources_of_the_models_are_read_before_anything_is_written(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(part: str) -> bytes:
        raise EmitError(part, "is missing", "reinstall")

    monkeypatch.setattr(layout, "model_source", missing)
    contract = make_contract()
    with pytest.raises(EmitError, match="is missing"):
        emit(make_artifacts(contract), contract, repository)
    assert not repository.exists()
