"""What stands beside an ensemble in a comparison: the model fused, and the ensemble without a network."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import yaml

from baseline.repository import config_of
from bireme.emitter.render import render

__all__ = ["FLOOR", "FUSED", "build_fused", "write_floor"]

FUSED, FLOOR = "fused", "floor"

_NULL = '''\
"""A network that costs nothing: zeros of the right shape."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self._tasks = [output["name"] for output in json.loads(args["model_config"])["output"]]

    def execute(self, requests):
        return [self._zeros(request) for request in requests]

    def _zeros(self, request):
        shape = pb_utils.get_input_tensor_by_name(request, "items").as_numpy().shape[:2]
        tensors = [pb_utils.Tensor(task, np.zeros(shape, np.float32)) for task in self._tasks]
        return pb_utils.InferenceResponse(tensors)
'''


def build_fused(spec_path: Path, repository: Path) -> str:
    """Build the same model once more in the fused layout, as `<model>_fused`; returns that name.

    Raises:
        BiremeError: it cannot be built.
    """
    from bireme.build import build

    raw = yaml.safe_load(spec_path.read_text(encoding="utf-8"))
    raw |= {
        name: str((spec_path.parent / raw[name]).absolute())
        for name in ("saved_model", "samples")
        if name in raw
    }
    raw["model"] = f"{raw['model']}_{FUSED}"
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "bireme.yaml"
        spec.write_text(yaml.safe_dump(raw), encoding="utf-8")
        return build(spec, repository, layout="fused").model


def write_floor(repository: Path, model: str) -> str:
    """Write `<model>_floor`, the ensemble with a network that gives zeros; returns that name.

    It shares `<model>_preprocess` with the ensemble.

    Raises:
        EmitError: the repository does not hold the ensemble.
    """
    floor, null = f"{model}_{FLOOR}", f"{model}_null"
    ensemble, dnn = config_of(repository, model), config_of(repository, f"{model}_dnn")
    ensemble.name, dnn.name = floor, null
    for step in ensemble.ensemble_scheduling.step:
        if step.model_name == f"{model}_dnn":
            step.model_name = null
    # Beside the repository, not in it: Triton takes every folder there for a model.
    with tempfile.TemporaryDirectory(dir=repository.parent) as folder:
        for config in (dnn, ensemble):
            made = Path(folder) / config.name
            (made / "1").mkdir(parents=True)
            head = [f"{model!r} without its network, for comparison."]
            (made / "config.pbtxt").write_text(render(config, head), encoding="utf-8")
            shutil.rmtree(repository / config.name, ignore_errors=True)
        (Path(folder) / null / "1" / "model.py").write_text(_NULL, encoding="utf-8")
        for name in (null, floor):
            (Path(folder) / name).rename(repository / name)
    return floor
