"""A folder for a build's large files, on the file system where they will stay."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bireme.errors import EmitError

__all__ = ["scratch_for"]

_PREFIX = ".bireme-scratch-"


@contextlib.contextmanager
def scratch_for(repository: Path) -> Iterator[Path]:
    """An empty folder from which files can be moved into `repository`; gone afterwards whatever happens.

    It lies beside the repository, or inside it where only that is the same file system. The repository itself
    is not touched, nor made. Where neither can be written it is the system's temporary folder; that files
    cannot be moved from there costs a copy. What a killed build has left behind is removed.

    Raises:
        EmitError: not even the temporary folder can be written.
    """
    try:
        folder, lock = _make(_place(repository.resolve()))
    except OSError:
        folder, lock = _make_elsewhere()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _make_elsewhere() -> tuple[Path, int]:
    place = Path(tempfile.gettempdir())
    try:
        return _make(place)
    except OSError as error:
        hint = "see its mode and free space, or set TMPDIR"
        raise EmitError(str(place), f"cannot be written: {error.strerror}", hint) from None


def _place(repository: Path) -> Path:
    """The repository's parent, or the nearest folder that will be it; the repository, if it is a mount."""
    parent = next(path for path in repository.parents if path.is_dir())
    mounted = repository.is_dir() and repository.stat().st_dev != parent.stat().st_dev
    return repository if mounted else parent


def _make(place: Path) -> tuple[Path, int]:
    """A new folder in `place`, and the lock on it that says its build is alive."""
    for left_over in place.glob(f"{_PREFIX}*"):
        _remove_if_dead(left_over)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists():
                return folder, lock
        except BlockingIOError:
            pass  # another build takes it for a left-over: it came before our lock
        os.close(lock)


def _remove_if_dead(folder: Path) -> None:
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass  # its build is at work
    finally:
        os.close(lock)
