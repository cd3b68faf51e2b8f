"""Large files are written once: the check reads them, then the emitter takes the same files over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bireme.errors import CompileError

__all__ = ["Staged", "stage"]

Write = Callable[[Path], None]


@dataclass(frozen=True)
class Staged:
    """A file that lies in a staging folder, as the function that puts it somewhere else.

    Args:
        source: the file; its folder may be gone by the time it is wanted.
        write: makes the file anew.
    """

    source: Path
    write: Write

    def __call__(self, path: Path) -> None:
        """Give the file a second name, which costs nothing; else copy it; without a source write it anew."""
        try:
            os.link(self.source, path)
        except OSError:  # another file system, or one without hard links
            if self.source.is_file():
                shutil.copyfile(self.source, path)
            else:
                self.write(path)


def stage(files: Mapping[str, Write], folder: Path) -> dict[str, Staged]:
    """Write every file into `folder`.

    Args:
        files: file name → what writes it.
        folder: where to.

    Returns:
        File name → what puts that file somewhere else.

    Raises:
        CompileError: the disk is full, or the folder cannot be written.
    """
    for name, write in files.items():
        try:
            write(folder / name)
        except OSError as error:
            raise CompileError(
                f"file '{name}'",
                f"cannot be written to {folder}: {error.strerror or error}",
                "see the free space there and the folder's mode",
            ) from None
    return {name: Staged(folder / name, write) for name, write in files.items()}
