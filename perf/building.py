"""Builds a repository in a process of its own: TensorFlow has no place in one that measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["build_apart"]

_CODE = "import sys, pathlib, bireme.build as b; b.build(*map(pathlib.Path, sys.argv[1:]))"


def build_apart(spec: Path, repository: Path) -> Path:
    """Build a spec into a repository; the repository.

    Raises:
        subprocess.CalledProcessError: the build fails.
    """
    command = [sys.executable, "-c", _CODE, str(spec), str(repository)]
    subprocess.run(command, check=True, capture_output=True)
    return repository
