"""`bireme engine` on a GPU, and what is refused: written for the real TensorRT and a real GPU, no stand-in.

One small plan is built and copied; each copy is damaged in its own way. Plans are loaded in a process of
their own, as Triton's Python backend does (TensorRT keeps the first logger of a process for ever). Neither
TensorFlow nor ONNX Runtime is needed, nor a server.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bireme.errors import EngineError, ServerError
from bireme_runtime import passport as passports
from bireme_runtime.gpu_facts import driver_version, visible_gpus
from bireme_runtime.passport import Gpu, Here

sys.path.append(str(Path(__file__).parent))

import tiny_network
from gpu_engine_helpers import Made, child, engine, files, load
from tiny_network import BUCKETS, USERS, reference

pytestmark = pytest.mark.gpu

# FP16 weights and sums of 2048 products, then a sigmoid.
_TOLERANCE = 0.01


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two requests: 1 user with 50 candidates, 3 users with 128."""
    random = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("requests") / "requests.npz"
    arrays = {}
    for index, (users, candidates) in enumerate([(1, 50), (3, 128)]):
        arrays[f"user{index}"] = random.standard_normal((users, tiny_network.USER)).astype(np.float16)
        arrays[f"items{index}"] = random.standard_normal((users, candidates, tiny_network.ITEM)).astype(
            np.float16
        )
    np.savez(path, **arrays)
    return path


def test_the_facts_are_those_of_the_cuda_runtime() -> None:
    from bireme_runtime.cuda import Cuda

    cuda = Cuda(0)
    gpu = visible_gpus()[0]
    assert (gpu.name, gpu.compute_capability) == (cuda.name, cuda.compute_capability)
    # CUDA keeps some for itself.
    assert 0.9 * gpu.memory_mb <= cuda.memory()[1] >> 20 <= gpu.memory_mb
    assert driver_version().count(".") >= 1


def test_a_plan_with_its_passport_and_report(made: Made) -> None:
    import tensorrt

    assert made.outcome.built
    assert {path.name for path in made.version.iterdir()} == {
        "engine_report.json",
        "model.onnx",
        "model.plan",
        "model.py",
        "passport.json",
    }
    gpu = visible_gpus()[0]
    assert passports.check(made.version, Here(tensorrt.__version__, gpu)) is None
    passport = passports.read(made.version)
    assert (passport.tensorrt, passport.gpu, passport.driver) == (
        tensorrt.__version__,
        gpu,
        driver_version(),
    )
    assert (passport.users, passport.buckets) == (USERS, BUCKETS)
    assert passport.precision == ("obey" if tensorrt.__version__.startswith("8.") else "strongly_typed")
    report = json.loads((made.version / "engine_report.json").read_text())
    assert report["layer_count"] == len(report["layers"]) > 0
    assert report["layers_by_type"], "the inspector gave no details"
    # 8.6 tells no type of a tensor whose shape may change.
    assert bool(report["layers_by_precision"]) == (not tensorrt.__version__.startswith("8."))
    assert report["device_memory_bytes"] > 0
    assert "score" in report["wanted_fp32"]
    executed = [line for line in report["warnings"] if "not executed" in line or "not finite" in line]
    assert executed == []
    assert made.timing_cache.stat().st_size > 0


def test_what_is_up_to_date_is_not_built_again(made: Made) -> None:
    before = files(made.version)
    outcome = engine(made.repository, made.timing_cache)
    assert (outcome.built, outcome.passport) == (False, passports.read(made.version))
    assert outcome.report["layer_count"] == made.outcome.report["layer_count"]
    assert files(made.version) == before


@pytest.fixture(scope="module")
def loads(
    made: Made, requests: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[Any]]]:
    """Case → what came of loading it: the plan as it is, and damaged in every way."""
    folder = tmp_path_factory.mktemp("damaged")
    passport = passports.read(made.version)
    folders = {"whole": made.version}
    for case in ("truncated", "other version", "other gpu", "other bytes", "other network", "no passport"):
        folders[case] = made.copy(folder / case.replace(" ", "_"))
    plan = (made.version / "model.plan").read_bytes()
    (folders["truncated"] / "model.plan").write_bytes(plan[: len(plan) // 2])
    flipped = bytearray(plan)
    flipped[len(plan) // 2] ^= 1
    (folders["other bytes"] / "model.plan").write_bytes(flipped)
    changes = {
        "other version": {"tensorrt": "8.5.3"},
        "other gpu": {"gpu": Gpu("NVIDIA A10", "8.6", 23028)},
    }
    for case, change in changes.items():
        dataclasses.replace(passport, **change).write(folders[case] / "passport.json")
    (folders["other network"] / "model.onnx").write_bytes(tiny_network.tiny("Tanh"))
    (folders["no passport"] / "passport.json").unlink()
    folders["uncovered"] = made.copy(folder / "uncovered")
    config = folders["uncovered"].parent / "config.pbtxt"
    config.write_text(config.read_text().replace('"64,128"', '"64,128,256"'))
    yield load(folders, requests)
    shutil.rmtree(folder)


def test_scores_are_those_of_numpy(loads: dict[str, list[Any]], requests: Path) -> None:
    error, *answers = loads["whole"]
    assert error == ""
    with np.load(requests) as stored:
        for index, answer in enumerate(answers):
            expected = reference(stored[f"user{index}"], stored[f"items{index}"])
            assert expected.std() > 10 * _TOLERANCE  # else any constant would pass
            np.testing.assert_allclose(np.array(answer), expected, rtol=0, atol=_TOLERANCE)
    assert len(answers) == 2


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("truncated", "model.plan is truncated: it has"),
        ("other version", "was built by TensorRT 8.5.3 and cannot be read by TensorRT"),
        ("other gpu", "was built for NVIDIA A10 (compute capability 8.6); here is"),
        ("other bytes", "model.plan is damaged or was replaced"),
        ("other network", "was built from another network than the model.onnx beside it"),
        ("no passport", "has no passport.json beside it"),
        ("uncovered", "was not built for users 1, bucket 256, which the config.pbtxt needs"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(loads: dict[str, list[Any]], case: str, words: str) -> None:
    (error,) = loads[case]
    assert words in error
    assert "build it on the GPU that will serve: bireme engine -r " in error


def test_the_server_is_not_started_on_a_plan_that_does_not_fit(made: Made, tmp_path: Path) -> None:
    """What `bireme serve` and `verify` ask before the server starts."""
    from bireme.server.gpu_plans import check_plans

    check_plans(made.repository, {})
    version = made.copy(tmp_path / "models")
    passport = passports.read(version)
    dataclasses.replace(passport, gpu=Gpu("NVIDIA A10", "8.6", 23028)).write(version / "passport.json")
    with pytest.raises(ServerError, match=r"was built for NVIDIA A10 .*bireme engine -r"):
        check_plans(tmp_path / "models", {})


def test_an_unsupported_op_is_named_and_the_old_plan_survives(made: Made, tmp_path: Path) -> None:
    version = made.copy(tmp_path / "models")
    (version / "model.onnx").write_bytes(tiny_network.tiny("NoSuchOp"))
    before = files(version)
    command = ["-c", "import sys; from bireme.cli import main; sys.exit(main())", "engine", "-r"]
    done = child([*command, str(tmp_path / "models"), "--timing-cache", "none"])
    said = " ".join(done.stderr.split())
    assert done.returncode == EngineError.exit_code, said
    assert "Traceback" not in done.stderr
    assert "unsupported op NoSuchOp at node active" in said
    assert "--target cpu" in said
    assert files(version) == before
    # The plan is the old network's, and nobody serves it as the new one's.
    refusal = passports.check(version, Here())
    assert refusal is not None
    assert "another network" in refusal.message


def test_too_small_a_workspace(tmp_path: Path) -> None:
    """1 MB for 4 x 512 x 1024 FP16 of each intermediate, 4 MB. Kernels that need none may exist."""
    version = tiny_network.write_repository(tmp_path / "models", tiny_network.attention(), (512,))
    before = files(version)
    refusal = None
    try:
        outcome = engine(tmp_path / "models", tmp_path / "timings", workspace_mb=1)
    except EngineError as error:
        refusal = error
    if refusal is None:
        assert outcome.passport.flags["workspace_mb"] == 1
        pytest.skip("TensorRT needed no more than 1 MB of workspace: no refusal to see")
    assert "a workspace of 1 MB is too small for TensorRT's kernels" in refusal.message
    assert "leave --workspace out" in refusal.hint
    assert files(version) == before


def test_too_little_memory_for_the_plan(made: Made, requests: Path) -> None:
    found = load({"plan": made.version}, requests, hold=True)
    assert found["plan"][0] == ""
    (error,) = found["plan held"]
    assert "has too little memory for tiny_dnn" in error
    assert "end what else is on the GPU" in error
    assert found["plan again"] == found["plan"]


def test_a_gpu_that_others_have_filled(made: Made) -> None:
    """This process holds the memory: the other one cannot even begin to use the GPU."""
    from load_networks import held

    from bireme_runtime.cuda import Cuda

    cuda = Cuda(0)
    pieces = held(cuda)
    try:
        found = load({"plan": made.version})
    finally:
        for piece in pieces:
            cuda.free(piece)
    (error,) = found["plan"]
    assert "has too little memory for tiny_dnn" in error
    assert "end what else is on the GPU" in error
