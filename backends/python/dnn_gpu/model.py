"""Triton model `<name>_dnn` on a GPU without NVIDIA's TensorRT backend: the same plan through Python.

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

from bireme_runtime.gpu_loading import open_dense
from bireme_runtime.serving import inputs_of, response_of


class TritonPythonModel:
    """One instance: a process with an engine, streams and CUDA graphs of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load `model.plan` that lies beside this file, on the GPU that Triton chose."""
        self._dense = open_dense(
            Path(__file__).parent,
            json.loads(args["model_config"]),
            int(args["model_instance_device_id"]),
            args["model_instance_name"],
            pb_utils.Logger.log_info,
            pb_utils.Logger.log_verbose,
        )

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse] | None:
        """Requests of one bucket run together; each gets exactly its own candidates back."""
        inputs = [inputs_of(request) for request in requests]
        if not self._dense.background:
            results = self._dense.run(inputs)
            return [response_of(pb_utils, self._dense.tasks, result) for result in results]
        senders = [request.get_response_sender() for request in requests]
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        self._dense.submit(
            inputs,
            lambda index, result: senders[index].send(
                response_of(pb_utils, self._dense.tasks, result), flags=final
            ),
        )
        return None  # the answers follow

    def finalize(self) -> None:
        """Wait for what is under way."""
        if hasattr(self, "_dense"):
            self._dense.close()
