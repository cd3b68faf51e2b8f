"""The launch-bound network: compiled by the kit, equal to TensorFlow; the eager baseline, equal to both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from bireme.requests import read_requests, to_rows
from bireme.spec import read_spec
from gpu.network import FLAT, ITEM, NAME, TASKS, repeat_user, write_model
from gpu.payloads import handed_over

ROWS = 40  # of each table
PACKAGES = Path(__file__).parents[2] / "build" / "bench" / "packages"  # `make bench-gather` puts torch there


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The model, its cpu build, and TensorFlow's scores of the first sample request."""
    from bireme.build import build
    from bireme.compiler.load import SavedModel
    from bireme_runtime.plan import Plan

    folder = tmp_path_factory.mktemp("network")
    spec, flat = write_model(folder, cores=2, rows=ROWS)
    build(spec, folder / "repository")
    preprocess = folder / "repository" / f"{NAME}_preprocess" / "1"
    request = read_requests(folder / "bireme.jsonl")[0]
    rows = to_rows(Plan.read(preprocess / "plan.json").features, request)
    model = SavedModel(folder / "saved_model")
    (tensors,) = handed_over(preprocess, [request], "float32")
    return {
        "onnx": folder / "repository" / f"{NAME}_dnn" / "1" / "model.onnx",
        "tensors": tensors,
        "scores": model.predict(rows),
        "flat": flat,
        "request": request,
    }


def test_the_kits_network_scores_as_tensorflow_does(compiled: dict[str, Any]) -> None:
    session = onnxruntime.InferenceSession(str(compiled["onnx"]))
    found = dict(zip(TASKS, session.run(list(TASKS), compiled["tensors"]), strict=True))
    for task in TASKS:
        wanted = np.asarray(compiled["scores"][task]).reshape(-1)
        # Tables are stored as FP16, so that scores differ by what that rounds.
        assert np.abs(found[task][0] - wanted).max() < 2e-3
        assert wanted.std() > 0.01, "scores that do not differ prove nothing"


def test_it_is_launch_bound_by_its_size(compiled: dict[str, Any]) -> None:
    graph = onnx.load(str(compiled["onnx"])).graph
    assert len(graph.node) >= 80
    widths = {v.name: v.type.tensor_type.shape.dim[-1].dim_value for v in graph.input}
    assert widths == {"user": 512, "items": 256}


def test_the_eager_baseline_scores_as_onnxruntime_does(compiled: dict[str, Any]) -> None:
    if not (PACKAGES / "torch").is_dir():
        pytest.skip("needs PyTorch: make bench-gather installs it beside the environment")
    sys.path.append(str(PACKAGES))
    try:
        from gpu.eager.interpreter import Eager
    finally:
        sys.path.remove(str(PACKAGES))
    eager = Eager(Path(compiled["onnx"]), "cpu")
    session = onnxruntime.InferenceSession(str(compiled["onnx"]))
    wanted = dict(zip(TASKS, session.run(list(TASKS), compiled["tensors"]), strict=True))
    found = eager.run(compiled["tensors"])
    assert set(found) == set(TASKS)
    for task, scores in wanted.items():
        assert found[task].dtype == np.float32
        assert np.abs(found[task] - scores).max() < 1e-5


def test_the_flat_model_takes_the_user_with_every_candidate(compiled: dict[str, Any]) -> None:
    spec = read_spec(compiled["flat"])
    assert (spec.model, spec.user) == (FLAT, ())
    request = repeat_user(compiled["request"])
    count = len(request["items"][ITEM[0]])
    assert not request["user"]
    assert request["items"]["city"] == [compiled["request"]["user"]["city"]] * count
    assert len(request["items"]["history"]) == count
