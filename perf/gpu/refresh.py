"""Puts this tree's runtime into repositories that were built with an older one, without TensorFlow.

For work on the runtime between two runs on a GPU machine: configs, tables and networks stay as built.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from bireme.emitter.manifest import MANIFEST
from bireme.emitter.resources import model_source, runtime_files

__all__ = ["refresh"]

_PARTS = {"cpu": "dnn", "gpu-python": "dnn_gpu"}


def refresh(repository: Path, target: str) -> int:
    """Replace the runtime and `model.py` of every Python model of an emitted ensemble.

    Args:
        repository: as `bireme build` wrote it.
        target: for which it was built.

    Returns:
        How many files differed.
    """
    changed = 0
    (manifest,) = repository.glob(f"*/{MANIFEST}")
    for model in sorted(path for path in repository.iterdir() if (path / "1" / "bireme_runtime").is_dir()):
        part = "preprocess" if model.name.endswith("_preprocess") else _PARTS[target]
        wanted = {"model.py": model_source(part)}
        wanted |= {f"bireme_runtime/{name}": content for name, content in runtime_files().items()}
        changed += _replace(model / "1", wanted)
    _correct(manifest, repository)
    return changed


def _replace(version: Path, wanted: dict[str, bytes]) -> int:
    changed = 0
    for path in sorted((version / "bireme_runtime").rglob("*.py")):
        if path.relative_to(version).as_posix() not in wanted:
            path.unlink()
            changed += 1
    for name, content in wanted.items():
        path = version / name
        if not path.exists() or path.read_bytes() != content:
            path.unlink(missing_ok=True)  # it may be a link to another repository's file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            changed += 1
    for cache in version.rglob("__pycache__"):
        shutil.rmtree(cache)
    return changed


def _correct(path: Path, repository: Path) -> None:
    """The manifest lists the runtime's files with their hashes."""
    manifest = json.loads(path.read_text(encoding="utf-8"))
    runtime = [
        file
        for model in manifest["models"]
        for file in (repository / model / "1").rglob("*")
        if file.is_file() and (file.name == "model.py" or "bireme_runtime" in file.parts)
    ]
    for known in list(manifest["files"]):
        if not (repository / known).exists():
            del manifest["files"][known], manifest["bytes"][known]
    for file in runtime:
        name = file.relative_to(repository).as_posix()
        manifest["files"][name] = hashlib.sha256(file.read_bytes()).hexdigest()
        manifest["bytes"][name] = file.stat().st_size
    path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
