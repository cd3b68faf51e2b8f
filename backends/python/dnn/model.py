"""Triton model `<name>_dnn` where there is no TensorRT backend: the dense network on ONNX Runtime (CPU).

Also `<name>_dnn_slice`, which takes a user state in place of `user`, and `<name>_dnn_user`, which makes that
state and knows no candidates.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The runtime vendored beside this file, not one that the environment may have installed.
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

from bireme_runtime.batching import group_by_bucket, pad_together, trim_apart


class TritonPythonModel:
    """One instance with a session of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load `model.onnx`; threads, buckets and whether lists are whole come from the parameters."""
        parameters = json.loads(args["model_config"]).get("parameters", {})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(parameters["intra_op_threads"]["string_value"])
        # Spinning threads would take cores from the preprocess instances.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        path = Path(__file__).parent / "model.onnx"
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._tasks = [output.name for output in self._session.get_outputs()]
        inputs = [value.name for value in self._session.get_inputs()]
        self._ranks = "items" in inputs
        #: `user` or a user state; nothing where the scores read no feature of the user
        self._per_user = [name for name in inputs if name != "items"]
        self._buckets = [int(bucket) for bucket in parameters["buckets"]["string_value"].split(",")]
        self._listwise = "listwise" in parameters

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Requests of one bucket run together; each gets exactly its own candidates back."""
        users = {name: [_input(request, name) for request in requests] for name in self._per_user}
        if not self._ranks:
            outputs = self._session.run(self._tasks, {name: np.concatenate(users[name]) for name in users})
            ends = np.cumsum([len(array) for array in users[self._per_user[0]]])[:-1]
            apart = [np.split(output, ends) for output in outputs]
            return [self._response(parts) for parts in zip(*apart, strict=True)]
        items = [_input(request, "items") for request in requests]
        sizes = [len(array) for array in items]
        counts = [array.shape[1] for array in items]
        groups, errors = group_by_bucket(counts, self._buckets, self._listwise)
        # `preprocess` lets no such request through; this is for whoever calls the model directly.
        responses = {
            index: pb_utils.InferenceResponse(
                error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
            )
            for index, message in errors.items()
        }
        for bucket, group in groups.items():
            feeds = {name: np.concatenate([users[name][i] for i in group]) for name in users}
            feeds["items"] = pad_together([items[i] for i in group], bucket)
            members, lengths = [sizes[i] for i in group], [counts[i] for i in group]
            scores = [trim_apart(array, members, lengths) for array in self._session.run(self._tasks, feeds)]
            for index, parts in zip(group, zip(*scores, strict=True), strict=True):
                responses[index] = self._response(parts)
        return [responses[index] for index in range(len(requests))]

    def _response(self, outputs: Sequence[np.ndarray[Any, Any]]) -> pb_utils.InferenceResponse:
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(task, array) for task, array in zip(self._tasks, outputs, strict=True)]
        )


def _input(request: pb_utils.InferenceRequest, name: str) -> np.ndarray[Any, Any]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    assert tensor is not None  # Triton sends no request without a required input
    return tensor.as_numpy()
