"""Triton model `<name>_dnn` where there is no TensorRT backend: the dense network on ONNX Runtime (CPU).

Also `<name>_dnn_slice`, which takes a user state in place of `user`, and `<name>_dnn_user`, which makes that
state and knows no candidates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# The runtime vendored beside this file, not one that the environment may have installed.
sys.path.insert(0, str(Path(__file__).parent))

import triton_python_backend_utils as pb_utils

from bireme_runtime.dense import Dense
from bireme_runtime.serving import inputs_of, response_of


class TritonPythonModel:
    """One instance with a session of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load `model.onnx` that lies beside this file."""
        self._dense = Dense.open(Path(__file__).parent / "model.onnx", json.loads(args["model_config"]))

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Requests of one bucket run together; each gets exactly its own candidates back."""
        # `preprocess` lets no bad request through; errors are for whoever calls the model directly.
        results = self._dense.run([inputs_of(request) for request in requests])
        return [response_of(pb_utils, self._dense.tasks, result) for result in results]
