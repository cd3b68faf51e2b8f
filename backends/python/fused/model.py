"""Triton model `<name>` of the fused layout: raw features in, scores out, all in one process (CPU).

It is `<name>_preprocess` and `<name>_dnn` without the hop between them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# The runtime vendored beside this file, not one that the environment may have installed.
sys.path.insert(0, str(Path(__file__).parent))

import triton_python_backend_utils as pb_utils

from bireme_runtime.dense import Dense
from bireme_runtime.serving import inputs_of, open_features, rank, response_of


class TritonPythonModel:
    """One instance with a session of its own; tables are mapped, so instances share them."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the feature plan and the network that lie beside this file."""
        folder = Path(__file__).parent
        self._features = open_features(folder, pb_utils, args["model_instance_name"])
        self._dense = Dense.open(folder / "model.onnx", json.loads(args["model_config"]))

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """All requests of the batch in one pass; each gets its own scores or error."""
        results = rank(self._features, self._dense, [inputs_of(request) for request in requests])
        return [response_of(pb_utils, self._dense.tasks, result) for result in results]
