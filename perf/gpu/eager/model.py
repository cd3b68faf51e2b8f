"""Triton models `<name>_eager` (the dense network) and `<name>_whole_eager` (raw features to scores).

One instance executes the network operator by operator with PyTorch, in FP32, on one stream, one request
after the other: what a framework without a compiler, batching and graphs does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE))


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the network that lies beside this file, and a feature plan where there is one."""
        parameters = json.loads(args["model_config"]).get("parameters", {})
        packages = parameters.get("packages", {}).get("string_value")
        if packages:  # behind the environment's own packages
            sys.path.append(packages)
        import triton_python_backend_utils as pb_utils
        from interpreter import Eager  # type: ignore[import-not-found,unused-ignore]

        self._backend = pb_utils
        self._eager = Eager(_HERE / "network.onnx", parameters["device"]["string_value"])
        self._features: Any = None
        if (_HERE / "plan.json").exists():
            from bireme_runtime.serving import open_features

            self._features = open_features(_HERE, pb_utils, args["model_instance_name"])
        pb_utils.Logger.log_info(
            f"{args['model_instance_name']}: {self._eager.operators} operators, one by one, on"
            f" {parameters['device']['string_value']}"
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Each request by itself."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        feeds = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if self._features is not None:
            (result,) = self._features.run([feeds])
            if isinstance(result, ValueError):
                error = self._backend.TritonError(str(result))
                return self._backend.InferenceResponse(error=error)
            feeds = {"user": result.user, "items": result.items}
        scores = self._eager.run({name: feeds[name] for name in self._eager.inputs})
        tensors = [self._backend.Tensor(task, array) for task, array in scores.items()]
        return self._backend.InferenceResponse(tensors)
