"""`bireme engine` on a small repository, and what comes of loading its plan: for test_gpu_engine.py."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny_network import NAME

__all__ = ["Made", "child", "engine", "files", "load"]

# Level 1: the same builder in a fraction of the time.
_LEVEL = 1
_LOAD_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Made:
    """The one plan that is built."""

    repository: Path
    outcome: Any
    timing_cache: Path

    @property
    def version(self) -> Path:
        return self.repository / NAME / "1"

    def copy(self, folder: Path) -> Path:
        """A copy of the repository; its version folder."""
        return Path(shutil.copytree(self.repository, folder)) / NAME / "1"


def engine(repository: Path, cache: Path, **options: Any) -> Any:
    """`bireme engine` in this process; the outcome of the one network."""
    from bireme.engine.build_engine import build_engines
    from bireme.engine.options import Options

    chosen = Options(level=_LEVEL, workspace_mb=options.pop("workspace_mb", None))
    said: list[str] = []
    try:
        (outcome,) = build_engines(
            repository, options=chosen, timing_cache=cache, progress=said.append, **options
        )
    finally:
        print("\n".join(said[-40:]))  # pytest shows it beside a failure
    return outcome


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def child(arguments: list[str], seconds: float = _LOAD_SECONDS) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=seconds,
        check=False,
    )


def load(
    folders: Mapping[str, Path], requests: Path | None = None, hold: bool = False
) -> dict[str, list[Any]]:
    """Case → the error, or "" and the scores of each request; see load_networks.py."""
    task = {
        "folders": {case: str(folder) for case, folder in folders.items()},
        "hold": hold,
        "requests": str(requests) if requests else None,
    }
    done = child([str(Path(__file__).with_name("load_networks.py")), json.dumps(task)])
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    print(done.stderr[-3000:])
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found
