"""Puts finished model folders into a repository: all of them, or none.

A build writes into a staging folder first. Its last act is to move the old folders of the model out and the
new ones in. Several renames are not one: so the list of folders is written into the staging folder before
the first of them, and whatever ends the build early (an error, Ctrl-C, a killed process) is answered by
moving everything back, at once or at the beginning of the next build.

Staging layout: `new/<model>` what was built, `old/<model>` what it replaced, `moving` the list of folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from bireme.errors import EmitError

__all__ = ["install", "staging"]


@contextlib.contextmanager
def staging(repository: Path) -> Iterator[Path]:
    """A folder to build in, gone afterwards whatever happens. One build at a time works on a repository.

    It lies beside the repository, where no tritonserver looks for models. Only where a rename could not leave
    the repository, because it is a file system of its own or its parent is not ours, it lies inside.

    Raises:
        EmitError: another build is at work, or the folder cannot be written.
    """
    try:
        repository.mkdir(parents=True, exist_ok=True)
        lock = os.open(repository, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(repository, error) from None
    try:
        _lock(lock, repository)
        root = repository.resolve()
        beside = root.parent.stat().st_dev == root.stat().st_dev and os.access(root.parent, os.W_OK)
        place = root.parent if beside else root
        prefix = f".{root.name}.bireme-"
        ours = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}")
        for left_over in [path for path in place.iterdir() if ours.fullmatch(path.name)]:
            _roll_back(left_over, root)
        try:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        except OSError as error:
            raise _unwritable(place, error) from None
        try:
            yield folder
        finally:
            _roll_back(folder, root)
    finally:
        os.close(lock)


def install(folder: Path, repository: Path, names: Sequence[str], retired: Sequence[str]) -> None:
    """Replace the folders `names` of the repository, in this order, by those in `folder/new`.

    The folders `retired` are removed last. If anything fails on the way, leaving `staging` undoes it.

    Raises:
        EmitError: a folder cannot be moved.
    """
    try:
        (folder / "old").mkdir()
        note = folder / "moving.tmp"
        note.write_text(json.dumps({"names": list(names), "retired": list(retired)}), encoding="utf-8")
        with _no_interrupt():
            note.rename(folder / "moving")
            for name in [*names, *retired]:
                if os.path.lexists(repository / name):
                    (repository / name).rename(folder / "old" / name)
                if name in names:
                    (folder / "new" / name).rename(repository / name)
            # From here on the new state is the valid one, with nothing to roll back to.
            (folder / "moving").unlink()
    except OSError as error:
        raise _unwritable(repository, error) from None


def _roll_back(folder: Path, repository: Path) -> None:
    """Undo an `install` that did not come to its end, if there was one, and remove the staging folder."""
    moving = folder / "moving"
    if moving.exists():
        try:
            _move_back(folder, repository, json.loads(moving.read_text(encoding="utf-8")))
        except OSError as error:
            raise EmitError(
                str(repository),
                f"could not be put back as it was: {error.strerror}; the old models are in {folder / 'old'}",
                "remedy that and run `bireme build` again, which puts them back first",
            ) from None
    shutil.rmtree(folder, ignore_errors=True)


def _move_back(folder: Path, repository: Path, moved: dict[str, list[str]]) -> None:
    """Look at each folder where it is now, so that it does not matter how far `install` or this came."""
    for name in reversed(moved["names"] + moved["retired"]):
        target, old, new = repository / name, folder / "old" / name, folder / "new" / name
        if name in moved["names"] and not new.exists() and target.exists():
            target.rename(new)
        if os.path.lexists(old):
            old.rename(target)
    (folder / "moving").unlink()


def _lock(handle: int, repository: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "wait for it, or build into another folder"
        raise EmitError(str(repository), "is being written by another build", hint) from None


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM for the few renames; they take effect right after."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    arrived: list[int] = []
    before = {
        number: signal.signal(number, lambda received, _: arrived.append(received))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for received in arrived:
            signal.raise_signal(received)


def _unwritable(path: Path, error: OSError) -> EmitError:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return EmitError(
            str(path), "cannot be written: a file is in the way of a folder", "name another folder"
        )
    return EmitError(str(path), f"cannot be written: {error.strerror}", "see its owner, mode and free space")
