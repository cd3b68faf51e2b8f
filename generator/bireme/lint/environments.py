"""What a packed Python environment (conda-pack) holds, as far as its file names tell."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["python_minor", "version_of"]

_PYTHON = re.compile(r"(?:^|/)lib/python3\.(\d+)/")


def python_minor(environment: Path) -> int | None:
    """11 for Python 3.11; None: not an environment, or not readable."""
    return next((int(found[1]) for name in _names(environment) if (found := _PYTHON.search(name))), None)


def version_of(environment: Path, package: str) -> str | None:
    """The version of a package in it; None: not there."""
    form = re.compile(rf"/site-packages/{re.escape(package)}-([0-9][^/]*)\.dist-info(?:/|$)")
    return next((found[1] for name in _names(environment) if (found := form.search(name))), None)


def _names(environment: Path) -> Iterator[str]:
    """Paths inside; of a folder, those that the two questions need."""
    if environment.is_dir():
        for path in sorted(environment.glob("lib/python3.*/site-packages/*")):
            yield f"{path.relative_to(environment).as_posix()}/"
        return
    try:
        with tarfile.open(environment) as archive:
            for member in archive:
                yield member.name
    except (OSError, tarfile.TarError, EOFError):
        return  # Triton says so when it unpacks it
