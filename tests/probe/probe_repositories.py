"""An ensemble of two steps that fails when told to: `shop_pre` passes the price on, `shop_dnn` doubles it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
from server_repositories import FEATURES, INPUTS, OUTPUT

# The age says what happens: 66 fails, 77 makes NaN of every score, 86 and 87 hang for a while.
_MODEL = """import time
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            value = pb.get_input_tensor_by_name(request, "{takes}").as_numpy()
            age = pb.get_input_tensor_by_name(request, "age").as_numpy()
            if (age == 66).any() and {fails}:
                error = pb.TritonError("shelf 3 is empty")
                responses.append(pb.InferenceResponse(error=error))
                continue
            if (age == {hangs}).any():
                time.sleep(1.5)
            if (age == 77).any():
                value = value * np.float32("nan")
            responses.append(pb.InferenceResponse([pb.Tensor("{gives}", value * np.float32({factor}))]))
        return responses
"""


def _step(repository: Path, name: str, takes: str, gives: str, factor: int, count: int) -> None:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    source = _MODEL.format(takes=takes, gives=gives, factor=factor, fails=factor == 2, hangs=85 + factor)
    (folder / "1" / "model.py").write_text(source)
    (folder / "config.pbtxt").write_text(
        f'name: "{name}"\nbackend: "python"\nmax_batch_size: 8\n'
        f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]\n"
        f'input [ {{ name: "{takes}" data_type: TYPE_FP32 dims: [ -1 ] }},\n'
        '  { name: "age" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
        f'output [ {{ name: "{gives}" data_type: TYPE_FP32 dims: [ -1 ] }} ]\n'
    )


def chain(repository: Path, count: int = 1) -> Path:
    """`shop`: price → `shop_pre` (in `count` processes) → `shop_dnn` → score, with its example request."""
    features = [feature for feature in FEATURES if feature["name"] != "item_id"]
    inputs = "\n".join(line for line in INPUTS.replace("RAGGED", "").splitlines() if "item_id" not in line)
    _step(repository, "shop_pre", "price", "worth", 1, count)
    _step(repository, "shop_dnn", "worth", "score", 2, 1)
    folder = repository / "shop"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        'name: "shop"\nplatform: "ensemble"\nmax_batch_size: 8\n'
        + inputs
        + "\n"
        + OUTPUT
        + "ensemble_scheduling {\n"
        '  step [ { model_name: "shop_pre" model_version: -1 input_map { key: "price" value: "price" }\n'
        '    input_map { key: "age" value: "age" } output_map { key: "worth" value: "worth" } },\n'
        '  { model_name: "shop_dnn" model_version: -1 input_map { key: "worth" value: "worth" }\n'
        '    input_map { key: "age" value: "age" } output_map { key: "score" value: "score" } } ]\n}\n'
        'parameters { key: "bireme_features" value { string_value: '
        f"{json.dumps(json.dumps(features))} }} }}\n"
    )
    manifest = {"format": 1, "model": "shop", "models": [], "files": {}, "bytes": {}, "tasks": ["score"]}
    (folder / "bireme.json").write_text(json.dumps(manifest))
    (folder / "example_request.json").write_text(json.dumps(request()))
    return repository


def request(age: float = 30.0) -> dict[str, dict[str, object]]:
    """Five candidates; their scores are 0, 2, 4, 6, 8."""
    return {"user": {"age": age}, "items": {"price": [0.0, 1.0, 2.0, 3.0, 4.0]}}
