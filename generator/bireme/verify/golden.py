"""Golden files: requests and the original model's scores, for a host that has no TensorFlow.

One compressed `.npz`: `about` and `requests` are JSON as bytes, `scores_<i>` holds all scores of the i-th
task, one request after another. Strings of requests are bytes, and JSON has none: they are kept as Latin-1
text, in which every byte is one character. Nothing is pickled, so reading a stranger's file runs nothing.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bireme.errors import VerifyError
from bireme.requests import Request, count_candidates

__all__ = ["Golden", "read_golden", "refuse_other_build", "write_golden"]

Array = np.ndarray[Any, Any]
_FORMAT = 1
_RECORD = "record it again: bireme verify SPEC --record FILE"


@dataclass(frozen=True)
class Golden:
    """What to send, and what must come back.

    Args:
        model: name of the ensemble.
        source: the manifest's entry of the same name: the SavedModel's hash, its signature, the spec.
        requests: each of one user.
        scores: for each request the original's, task → [N].
        together: indices of requests that also travel as the users of one request.
    """

    model: str
    source: Mapping[str, Any]
    requests: Sequence[Request]
    scores: Sequence[Mapping[str, Array]]
    together: Sequence[Sequence[int]] = ()


def write_golden(golden: Golden, path: Path) -> None:
    """Write the file: completely, or not at all.

    Raises:
        VerifyError: it cannot be written.
    """
    tasks = list(golden.scores[0])
    about = {
        "format": _FORMAT,
        "model": golden.model,
        "source": golden.source,
        "tasks": tasks,
        "together": [list(group) for group in golden.together],
    }
    columns = {
        f"scores_{number}": np.concatenate([entry[task] for entry in golden.scores])
        for number, task in enumerate(tasks)
    }
    texts = {"about": about, "requests": [_plain(request) for request in golden.requests]}
    packed = {name: np.frombuffer(json.dumps(value).encode(), np.uint8) for name, value in texts.items()}
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as stream:
            np.savez_compressed(stream, **packed, **columns)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise VerifyError(str(path), f"cannot be written: {error.strerror}", "name another file") from None
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_golden(path: Path) -> Golden:
    """Read a golden file.

    Raises:
        VerifyError: it is missing, damaged, or of another format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(file["about"].tobytes())
            if about["format"] != _FORMAT:
                message = f"is a golden file of format {about['format']}, and this bireme reads {_FORMAT}"
                raise VerifyError(str(path), message, _RECORD)
            requests = [_with_bytes(request) for request in json.loads(file["requests"].tobytes())]
            ends = np.cumsum([count_candidates(request) for request in requests])
            columns = {task: file[f"scores_{number}"] for number, task in enumerate(about["tasks"])}
        if any(len(column) != ends[-1] for column in columns.values()):
            raise ValueError("scores and candidates differ in number")
        if any(not 0 <= index < len(requests) for group in about["together"] for index in group):
            raise ValueError("a group names a request that is not there")
        parts = {task: np.split(column, ends[:-1]) for task, column in columns.items()}
        scores = [{task: parts[task][index] for task in parts} for index in range(len(requests))]
        return Golden(about["model"], about["source"], requests, scores, about["together"])
    except OSError as error:
        raise VerifyError(str(path), f"cannot be read: {error.strerror or error}", _RECORD) from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, EOFError, zipfile.BadZipFile):
        message = "is no golden file, or a damaged one"
        raise VerifyError(str(path), message, _RECORD) from None


def refuse_other_build(golden: Golden, path: Path, manifest: Mapping[str, Any]) -> None:
    """Compare what a golden file was recorded for with what a repository was built from.

    The targets of one SavedModel and spec share a golden file: their scores are meant to be equal.

    Args:
        golden: as read.
        path: its file, for the error.
        manifest: the repository's.

    Raises:
        VerifyError: another model, another SavedModel, or another spec.
    """
    built = manifest["source"]
    if golden.source.get("saved_model_sha256") != built.get("saved_model_sha256"):
        raise VerifyError(str(path), "was recorded from another SavedModel than the repository's", _RECORD)
    theirs, ours = built.get("spec") or {}, golden.source.get("spec") or {}
    pairs = {name: (ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})}
    pairs["signature"] = (golden.source.get("signature"), built.get("signature"))
    for name, (mine, other) in pairs.items():
        if mine != other:
            message = f"was recorded with {name} = {mine}, and the repository was built with {other}"
            raise VerifyError(str(path), message, _RECORD)


def _plain(value: Any) -> Any:
    """Request values as JSON has them."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, str):
        return value.encode().decode("latin-1")
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _with_bytes(value: Any) -> Any:
    """`_plain` undone; every string comes back as bytes, feature names stay text."""
    if isinstance(value, dict):
        return {key: _with_bytes(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_bytes(inner) for inner in value]
    return value.encode("latin-1") if isinstance(value, str) else value
