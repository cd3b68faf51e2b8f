"""Triton model `<name>_whole`: the whole SavedModel in one Python-backend model, as people serve it today.

It takes the same requests as the ensemble, one user and N candidates. The signature wants rows, so the user's
features are repeated for every candidate, unless the settings say that it takes the user once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import triton_python_backend_utils as pb_utils

Array = np.ndarray[Any, Any]
Rows = dict[str, Array]


class TritonPythonModel:
    """One instance with a copy of the SavedModel of its own."""

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 - Triton passes it
        """Load the SavedModel that `whole.json` names and call it once, so that no request pays for that."""
        settings = json.loads((Path(__file__).parent / "whole.json").read_text(encoding="utf-8"))
        tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
        tf.config.threading.set_inter_op_parallelism_threads(settings["threads"])
        self._features: list[dict[str, Any]] = settings["features"]
        self._tasks: dict[str, str] = settings["tasks"]
        self._once: bool = settings["once"]
        self._model = tf.saved_model.load(settings["saved_model"])  # keeps the function's variables alive
        self._function = self._model.signatures[settings["signature"]]
        self._dtypes = {
            name: spec.dtype for name, spec in self._function.structured_input_signature[1].items()
        }
        self._scores([{feature["name"]: _neutral_row(feature) for feature in self._features}])

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Requests whose sequences are equally long go through the signature together."""
        sizes, rows = [], []
        for request in requests:
            found = (
                (f["name"], pb_utils.get_input_tensor_by_name(request, f["name"])) for f in self._features
            )
            tensors = {name: tensor.as_numpy() for name, tensor in found if tensor is not None}
            sizes.append(_size(self._features, tensors))
            rows.append(_to_rows(self._features, tensors, *sizes[-1], self._once))
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, arrays in enumerate(rows):
            lengths = tuple(array.shape[1] for array in arrays.values() if array.ndim > 1)
            # A signature that takes the user once takes one user.
            groups.setdefault((index, *lengths) if self._once else lengths, []).append(index)
        responses: dict[int, pb_utils.InferenceResponse] = {}
        for group in groups.values():
            scores = self._scores([rows[index] for index in group])
            first = 0
            for index in group:
                last = first + sizes[index][0] * sizes[index][1]
                parts = [pb_utils.Tensor(t, a[first:last].reshape(sizes[index])) for t, a in scores.items()]
                responses[index] = pb_utils.InferenceResponse(parts)
                first = last
        return [responses[index] for index in range(len(requests))]

    def _scores(self, parts: Sequence[Rows]) -> dict[str, Array]:
        """Task → FP32 [all rows of all parts]."""
        feeds = {}
        for name, dtype in self._dtypes.items():
            arrays = [rows[name] for rows in parts]
            feeds[name] = tf.constant(arrays[0] if len(arrays) == 1 else np.concatenate(arrays), dtype=dtype)
        found = self._function(**feeds)
        return {task: found[output].numpy().reshape(-1) for task, output in self._tasks.items()}


def _size(features: Sequence[Mapping[str, Any]], tensors: Mapping[str, Array]) -> tuple[int, int]:
    """Users and candidates of one request."""
    item = next(f["name"] for f in features if f["side"] == "item" and f["name"] in tensors)
    users, candidates = tensors[item].shape[:2]
    return users, candidates


def _to_rows(
    features: Sequence[Mapping[str, Any]],
    tensors: Mapping[str, Array],
    users: int,
    candidates: int,
    once: bool = False,
) -> Rows:
    """One row a user and candidate: [rows] a feature, [rows, L] a sequence; the user's one row if `once`."""
    rows = {}
    for feature in features:
        name, ending = feature["name"], () if feature["length"] is None else (-1,)
        if name not in tensors:
            rows[name] = np.repeat(_row(feature, feature["default"]), users * candidates, axis=0)
        elif feature["side"] == "user":
            array = tensors[name] if ending else tensors[name][:, 0]
            rows[name] = array if once else np.repeat(array, candidates, axis=0)
        else:
            rows[name] = tensors[name].reshape(users * candidates, *tensors[name].shape[2:])
    return rows


def _neutral_row(feature: Mapping[str, Any]) -> Array:
    value: Any = "" if feature["dtype"] == "string" else 0
    return _row(feature, value if feature["length"] is None else [value] * max(feature["length"], 1))


def _row(feature: Mapping[str, Any], value: Any) -> Array:
    """One value or sequence as [1] or [1, L]."""
    array = np.array([value], dtype=object if feature["dtype"] == "string" else feature["dtype"])
    return array.reshape(1, -1) if feature["length"] is not None else array
