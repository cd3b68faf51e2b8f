"""Requests as perf_analyzer reads them: JSON with base64 of every tensor."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bireme.requests import Request, to_tensors
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Preprocessor

__all__ = ["handed_over", "raw", "write_payload"]

Array = np.ndarray[Any, Any]


def handed_over(folder: Path, requests: Sequence[Request], dtype: str) -> list[dict[str, Array]]:
    """What `preprocess` makes of requests: the inputs of the dense network.

    Args:
        folder: version folder of the preprocess model.
        requests: one user each.
        dtype: in which the network takes it.

    Returns:
        For each request `user` [1, width], where the plan has a user's side, and `items` [1, N, width].

    Raises:
        ValueError: a request is refused.
    """
    preprocessor = Preprocessor.open(folder)
    plan = preprocessor.plan
    found = []
    for request in requests:
        (result,) = preprocessor.run([to_tensors(plan.features, request)])
        if isinstance(result, ValueError):
            raise result
        tensors = {"items": result.items[:, : result.candidates]}
        if plan.user_width:
            tensors["user"] = result.user
        found.append({name: np.array(tensor, dtype=dtype) for name, tensor in tensors.items()})
    return found


def raw(plan: Plan, requests: Sequence[Request]) -> list[dict[str, Array]]:
    """The tensors that a client sends to the ensemble."""
    return [to_tensors(plan.features, request) for request in requests]


def write_payload(path: Path, tensors: Sequence[Mapping[str, Array]]) -> Path:
    """Write requests for perf_analyzer; the path.

    Args:
        path: the file.
        tensors: for each request input → [1, …]; the first dimension is the batch, which perf_analyzer adds.
    """
    data = [{name: _tensor(array[0]) for name, array in request.items()} for request in tensors]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"data": data}), encoding="utf-8")
    return path


def _tensor(array: Array) -> dict[str, Any]:
    if array.dtype == object:
        return {"content": [_text(value) for value in array.reshape(-1)], "shape": list(array.shape)}
    content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"content": {"b64": content}, "shape": list(array.shape)}


def _text(value: bytes) -> str:
    return value.decode("utf-8")
