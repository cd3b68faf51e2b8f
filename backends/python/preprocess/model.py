"""Triton model `<name>_preprocess`: raw features in, `user` and `items` out (CPU).

`<name>_preprocess_user` and `<name>_preprocess_slice` run half a plan: one of the two comes out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# The runtime vendored beside this file, not one that the environment may have installed.
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import triton_python_backend_utils as pb_utils

from bireme_runtime.preprocessor import Features
from bireme_runtime.serving import inputs_of, open_features, response_of
from bireme_runtime.user_state import StateCheck


class TritonPythonModel:
    """One instance; tables are mapped, so instances share them."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the feature plan that lies beside this file."""
        self._preprocessor = open_features(Path(__file__).parent, pb_utils, args["model_instance_name"])
        plan = self._preprocessor.plan
        here = {"user": plan.user_width, "items": plan.item_width, "n": plan.pad}
        self._names = [name for name, there in here.items() if there]
        self._state = StateCheck.of(json.loads(args["model_config"]))

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """All requests of the batch in one pass; each gets its own result or error."""
        tensors = [inputs_of(request) for request in requests]
        results: list[Features | ValueError] = list(self._preprocessor.run(tensors))
        if self._state is not None:
            refusals = [self._state.refusal(given) for given in tensors]
            results = [refusal or result for refusal, result in zip(refusals, results, strict=True)]
        return [self._response(result) for result in results]

    def _response(self, result: Features | ValueError) -> pb_utils.InferenceResponse:
        if isinstance(result, ValueError):
            return response_of(pb_utils, (), result)
        tensors = {"user": result.user, "items": result.items}
        if "n" in self._names:
            tensors["n"] = np.full((len(result.user), 1), result.candidates, dtype=np.int32)
        return response_of(pb_utils, self._names, [tensors[name] for name in self._names])
