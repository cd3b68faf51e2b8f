"""What a GPU needs to check the typed networks of the precision record: ONNX, inputs, expected scores.

`run_tensorrt.py`, which needs neither TensorFlow nor this package, reads it there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.attempts import taken
from bireme.compiler.pipeline import Compiled
from bireme.requests import Request

__all__ = ["file_name", "write_case"]

Array = np.ndarray[Any, Any]


def file_name(model: str) -> str:
    """A model's name as the stem of a file."""
    return re.sub(r"[^A-Za-z0-9]+", "_", model)


def write_case(
    name: str,
    compiled: Compiled,
    files: Path,
    requests: Sequence[Request],
    expected: Mapping[str, Sequence[Array]],
    folder: Path,
) -> None:
    """Write `<name>.onnx` and `<name>.npz`.

    Args:
        name: of the model.
        compiled: compiled for the gpu target.
        files: where its plan's files lie.
        requests: one user each, all with the same number of candidates.
        expected: task → TensorFlow's scores of each request.
        folder: where to; made if it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / file_name(name)
    stem.with_suffix(".onnx").write_bytes(compiled.dense.SerializeToString(deterministic=True))
    halves = [half for _, half in taken(compiled.plan, files, requests)]
    arrays = {f"expected_{task}": np.stack(scores) for task, scores in expected.items()}
    arrays["user"] = np.concatenate([half.user for half in halves])
    arrays["items"] = np.concatenate([half.items for half in halves])
    np.savez(stem.with_suffix(".npz"), **arrays)
