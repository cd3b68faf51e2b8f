"""`bireme.json`, the manifest of an ensemble: what the repository should hold, and whether it does."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from bireme import __version__
from bireme.errors import EmitError
from bireme.spec import Contract
from bireme_runtime.hashes import file_sha256

__all__ = ["MANIFEST", "check_repository", "make_manifest", "plan_folder", "read_manifest"]

MANIFEST = "bireme.json"
_FORMAT = 1
_REMEDY = "run `bireme build` again"
# Hashing reads about 1 GB a second, so below this a file costs under 20 ms; above it lie the arenas.
_HASHED_BY_DEFAULT = 16 << 20


def make_manifest(
    contract: Contract, models: Iterable[str], root: Path, source: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest of the finished model folders under `root`; it lists every file in them but itself."""
    models = list(models)
    files = sorted(path for model in models for path in (root / model).rglob("*") if path.is_file())
    return {
        "bireme": __version__,
        "format": _FORMAT,
        "model": contract.model,
        "target": contract.target,
        "layout": contract.layout,
        "tasks": list(contract.tasks),
        "buckets": list(contract.buckets),
        "max_users": contract.max_users,
        "instances": contract.instances.model_dump(),
        "features": [dataclasses.asdict(feature) for feature in contract.features],
        "losses": [loss.model_dump() for loss in contract.losses],
        "models": models,
        "files": {path.relative_to(root).as_posix(): file_sha256(path) for path in files},
        "bytes": {path.relative_to(root).as_posix(): path.stat().st_size for path in files},
        "source": dict(source),
    }


def read_manifest(repository: Path, model: str) -> dict[str, Any]:
    """The manifest of one ensemble.

    Raises:
        EmitError: there is none, or it is damaged or of another format.
    """
    path = repository / model / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        files, sizes = manifest["files"], manifest["bytes"]
        sound = files.keys() == sizes.keys() and isinstance(manifest["models"], list)
    except OSError as error:
        raise EmitError(str(path), f"cannot be read: {error.strerror}", _REMEDY) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise EmitError(str(path), "is damaged", _REMEDY) from None
    if not sound or manifest.get("format") != _FORMAT or manifest.get("model") != model:
        raise EmitError(str(path), f"is no manifest of format {_FORMAT} for {model!r}", _REMEDY)
    return dict(manifest)


def plan_folder(repository: Path, model: str) -> Path:
    """The folder of an emitted ensemble that holds its feature plan, tables and vocabularies.

    Raises:
        EmitError: as `read_manifest`.
    """
    fused = read_manifest(repository, model).get("layout") == "fused"
    return repository / (model if fused else f"{model}_preprocess") / "1"


def check_repository(repository: Path, model: str, deep: bool = False) -> None:
    """Compare an emitted ensemble with its manifest.

    Files beside the listed ones are allowed (a `model.plan` built later, Python's caches).

    Args:
        repository: the model repository.
        model: name of the ensemble.
        deep: hash the large files too; otherwise only their size is compared.

    Raises:
        EmitError: naming the first file that is missing, truncated or altered.
    """
    manifest = read_manifest(repository, model)
    for name, expected in manifest["files"].items():
        path = repository / name
        size = manifest["bytes"][name]
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise EmitError(str(repository / model / MANIFEST), f"names {name!r}, outside", _REMEDY)
        try:
            if not path.is_file():
                raise EmitError(str(path), "is missing", _REMEDY)
            if path.stat().st_size != size:
                actual = path.stat().st_size
                raise EmitError(str(path), f"has {actual} bytes where {size} were built", _REMEDY)
            if (deep or size <= _HASHED_BY_DEFAULT) and file_sha256(path) != expected:
                raise EmitError(str(path), "was changed after it was built", _REMEDY)
        except OSError as error:
            raise EmitError(str(path), f"cannot be read: {error.strerror}", _REMEDY) from None
