"""Triton model `<name>_preprocess`: raw features in, `user` and `items` out (CPU).

`<name>_preprocess_user` and `<name>_preprocess_slice` run half a plan: one of the two comes out.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

# The runtime vendored beside this file, not one that the environment may have installed.
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import triton_python_backend_utils as pb_utils

from bireme_runtime.library import load
from bireme_runtime.local_store import VARIABLE
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.user_state import StateCheck
from bireme_runtime.wire import install


class TritonPythonModel:
    """One instance; tables are mapped, so instances share them."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the feature plan that lies beside this file."""
        library, about = load()
        # Huge pages are the host's matter, so that its environment says what to do. Triton copies a response
        # before it asks for the next batch, so that results may lie in the same memory.
        policy = os.environ.get(VARIABLE, "auto")
        self._preprocessor = Preprocessor.open(Path(__file__).parent, policy, library, reuse=True)
        for note in (about, *self._preprocessor.notes):
            pb_utils.Logger.log_info(f"{args['model_instance_name']}: {note}")
        install(pb_utils)
        plan = self._preprocessor.plan
        self._pads, self._user, self._items = plan.pad, bool(plan.user_width), bool(plan.item_width)
        self._state = StateCheck.of(json.loads(args["model_config"]))

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """All requests of the batch in one pass; each gets its own result or error."""
        tensors = [self._tensors(request) for request in requests]
        results: list[Features | ValueError] = list(self._preprocessor.run(tensors))
        if self._state is not None:
            refusals = [self._state.refusal(given) for given in tensors]
            results = [refusal or result for refusal, result in zip(refusals, results, strict=True)]
        return [self._response(result) for result in results]

    def _tensors(self, request: pb_utils.InferenceRequest) -> dict[str, np.ndarray[Any, Any]]:
        # Not `get_input_tensor_by_name`: it goes through all inputs at every call.
        return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}

    def _response(self, result: Features | ValueError) -> pb_utils.InferenceResponse:
        if isinstance(result, ValueError):
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(str(result), pb_utils.TritonError.INVALID_ARG)
            )
        tensors = [pb_utils.Tensor("user", result.user)] if self._user else []
        if self._items:
            tensors.append(pb_utils.Tensor("items", result.items))
        if self._pads:
            count = np.full((len(result.user), 1), result.candidates, dtype=np.int32)
            tensors.append(pb_utils.Tensor("n", count))
        return pb_utils.InferenceResponse(tensors)
