"""A folder with all that a comparison serves: built where TensorFlow and a compiler are, served anywhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from variants import build_fused

__all__ = ["REPOSITORY", "SPEC", "prepare"]

SPEC, REPOSITORY = "bireme.yaml", "repository"
_COPIED = ("saved_model", "samples")


def prepare(spec_path: Path, folder: Path, cores: int = 0) -> Path:
    """Copy a spec with its SavedModel and samples, build the ensemble and its fused twin; the folder.

    Args:
        spec_path: the build spec.
        folder: made if it is missing.
        cores: of the server, for which processes and threads are chosen; 0: the spec or the machine says.

    Raises:
        BiremeError: it cannot be built.
    """
    from bireme.build import build  # TensorFlow; who only serves does without

    folder.mkdir(parents=True, exist_ok=True)
    raw = yaml.safe_load(spec_path.read_text(encoding="utf-8"))
    for name in _COPIED:
        if name in raw:
            original, copy = spec_path.parent / raw[name], folder / name
            if original.is_dir():
                shutil.copytree(original, copy, dirs_exist_ok=True)
            else:
                shutil.copyfile(original, copy)
            raw[name] = name
    if cores:
        raw["cores"] = cores
    spec = folder / SPEC
    spec.write_text(yaml.safe_dump(raw), encoding="utf-8")
    unfinished = folder / f"{REPOSITORY}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    build(spec, unfinished)
    build_fused(spec, unfinished)
    unfinished.rename(folder / REPOSITORY)
    return folder
