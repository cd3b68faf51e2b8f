"""Small model repositories for the server tests."""

from __future__ import annotations

import json
from pathlib import Path

MODEL = """import time
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            price = pb.get_input_tensor_by_name(request, "price").as_numpy()
            if (price < 0).any():
                time.sleep(float(-price.min()))
            responses.append(pb.InferenceResponse([pb.Tensor("score", price * 2)]))
        return responses
"""
INPUTS = """input [
  { name: "item_id" data_type: TYPE_STRING dims: [ -1 ]RAGGED },
  { name: "price" data_type: TYPE_FP32 dims: [ -1 ]RAGGED },
  { name: "age" data_type: TYPE_FP32 dims: [ 1 ] }
]
"""
OUTPUT = 'output [ { name: "score" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
FEATURES = (
    {"name": "item_id", "side": "item", "dtype": "string"},
    {"name": "price", "side": "item", "dtype": "float32"},
    {"name": "age", "side": "user", "dtype": "float32"},
)


def python_model(repository: Path, name: str = "shop_dnn", source: str = MODEL, config: str = "") -> Path:
    """A model on the Python backend that doubles the price; a negative one makes it sleep so many seconds."""
    text = INPUTS.replace("RAGGED", " allow_ragged_batch: true") + OUTPUT + "dynamic_batching { }\n"
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(source)
    head = f'name: "{name}"\nbackend: "python"\nmax_batch_size: 8\ninstance_group [ {{ kind: KIND_CPU }} ]\n'
    (folder / "config.pbtxt").write_text(head + (config or text))
    return folder


def ensemble(repository: Path, name: str = "shop", step: str = "shop_dnn") -> Path:
    """An ensemble of one step, with what `bireme serve` and the client read of it."""
    features = json.dumps(json.dumps(FEATURES))
    maps = "".join(f'    input_map {{ key: "{f["name"]}" value: "{f["name"]}" }}\n' for f in FEATURES)
    text = (
        f'name: "{name}"\nplatform: "ensemble"\nmax_batch_size: 8\n'
        + INPUTS.replace("RAGGED", "")
        + OUTPUT
        + f'ensemble_scheduling {{ step [ {{\n    model_name: "{step}"\n    model_version: -1\n{maps}'
        + '    output_map { key: "score" value: "score" }\n} ] }\n'
        + f'parameters {{ key: "bireme_features" value {{ string_value: {features} }} }}\n'
    )
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text)
    manifest = {"format": 1, "model": name, "models": [], "files": {}, "bytes": {}, "tasks": ["score"]}
    (folder / "bireme.json").write_text(json.dumps(manifest))
    items = {"item_id": [f"shoe-{i}" for i in range(12)], "price": [float(i * 7 % 12) for i in range(12)]}
    (folder / "example_request.json").write_text(json.dumps({"user": {"age": 30.0}, "items": items}))
    return folder


def shop(repository: Path) -> Path:
    """The whole: `shop_dnn` and the ensemble `shop`."""
    python_model(repository)
    ensemble(repository)
    return repository
