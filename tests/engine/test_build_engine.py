"""`bireme engine` from a repository to plan, passport and report.

TensorRT is a stand-in (fake_tensorrt.py) in its API of 8.6, 10 and 11, and so is the GPU, as neither can be
had here; the execution of the plan in the self check is left out with them. tests/gpu/test_gpu_engine.py does
the same with the real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine_helpers import H200, MIXED, gpu_repository
from fake_tensorrt import DataType, FakeTensorRT, Severity

from bireme.engine import build_engine, selfcheck
from bireme.engine.build_engine import Tool, build_engines
from bireme.engine.options import Options
from bireme.errors import EngineError
from bireme_runtime import passport as passports
from bireme_runtime.passport import Gpu, Here


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(build_engine, "visible_gpus", lambda: [H200])
    monkeypatch.setattr(build_engine, "driver_version", lambda: "580.159.04")
    monkeypatch.setattr(selfcheck, "_CUDART", ("libcudart-is-not-here.so",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["8.6.0", "10.3.0", "11.0.0"])
def trt(request):
    return FakeTensorRT(request.param)


def run(repository, trt, **options):
    return list(build_engines(repository, choose=lambda: Tool(trt.__version__, package=trt), **options))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("target", ["gpu", "gpu-python"])
def test_a_plan_with_its_passport_and_report(tmp_path, trt, target):
    repository = gpu_repository(tmp_path / "models", target)
    (outcome,) = run(repository, trt)
    folder = repository / "shop_dnn" / "1"
    assert (outcome.model, outcome.folder, outcome.built) == ("shop_dnn", folder, True)
    passport = passports.read(folder)
    assert passports.check(folder, Here(trt.__version__, H200)) is None
    assert (passport.tensorrt, passport.gpu, passport.driver) == (trt.__version__, H200, "580.159.04")
    assert passport.precision == ("obey" if trt.number == 8 else "strongly_typed")
    assert (passport.users, passport.buckets) == (6, (4, 16))
    assert passport.profile["items"].min == (1, 4, 9)
    assert passport.profile["items"].max == (6, 16, 9)
    report = json.loads((folder / "engine_report.json").read_text())
    assert report["layer_count"] == 4
    assert report["layers_by_precision"] == {"FP32": 3, "FP16": 1}
    assert report["device_memory_bytes"] == 3 << 20
    assert report["wanted_fp32"] == ["large"]
    assert (
        sorted(files(folder))
        == sorted(
            {"model.onnx", "BUILD_PLAN.txt", "model.plan", "passport.json", "engine_report.json"}
            | ({"model.py", "bireme_runtime"} & {p.name for p in folder.iterdir()})
        )
        if target == "gpu"
        else True
    )


def test_types_are_imposed_as_each_version_wants(tmp_path, trt):
    run(gpu_repository(tmp_path / "models"), trt)
    (config,), (network,) = trt.configs, trt.networks
    constrained = {layer.name: layer for layer in network.layers if layer.precision is not None}
    assert "tf32" not in config.flags
    if trt.number == 8:
        assert network.flags == 1
        assert config.flags == {"fp16", "obey"}
        assert list(constrained) == ["large"]
        assert constrained["large"].precision is DataType.FLOAT
        assert constrained["large"].output_types == {0: DataType.FLOAT}
        assert config.features == {"sharing"}
    else:
        assert network.flags == (2 if trt.number == 10 else 0)
        assert config.flags == set()
        assert not constrained


def test_without_the_package_onnx_tensorrts_own_types_decide(tmp_path, monkeypatch):
    from bireme.engine import tensorrt_builder
    from bireme.engine.onnx_nodes import Nodes

    trt = FakeTensorRT("8.6.0")
    monkeypatch.setattr(tensorrt_builder, "read_nodes", lambda content: Nodes())
    run(gpu_repository(tmp_path / "models"), trt)
    assert [layer.name for layer in trt.networks[0].layers if layer.precision] == ["large"]


def test_a_network_without_fp16_gets_no_fp16(tmp_path):
    trt = FakeTensorRT("8.6.0")
    text = MIXED.replace("float16[", "float[").replace("Cast<to = 1>", "Identity")
    (outcome,) = run(gpu_repository(tmp_path / "models", text=text, handover="float32"), trt)
    assert outcome.passport.precision == "fp32"
    assert trt.configs[0].flags == set()


def test_options_reach_the_builder_and_the_passport(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    run(repository, trt, options=Options(workspace_mb=64, level=2, tf32=True))
    (config,) = trt.configs
    assert config.limits == {"workspace": 64 << 20}
    assert config.builder_optimization_level == 2
    assert "tf32" in config.flags
    assert passports.read(repository / "shop_dnn/1").flags == {"workspace_mb": 64, "level": 2, "tf32": True}


def test_timings_are_kept_by_version_and_gpu(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    run(repository, trt)
    (cache,) = (tmp_path / "cache/bireme").iterdir()
    assert cache.name == f"tensorrt-{trt.__version__}_NVIDIA_H200_9.0.timing"
    assert cache.read_bytes() == b"timed"
    run(repository, trt, force=True)
    assert cache.read_bytes() == b"timedtimed"
    trt.refuse_cache = True
    run(repository, trt, force=True)
    assert cache.read_bytes() == b"timed"  # what does not fit is started anew
    run(repository, trt, force=True, timing_cache="none")
    assert cache.read_bytes() == b"timed"


def test_what_is_up_to_date_is_not_built_again(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    run(repository, trt)
    (again,) = run(repository, trt)
    assert (again.built, len(trt.configs)) == (False, 1)
    assert again.report["layer_count"] == 4
    run(repository, trt, force=True)
    assert len(trt.configs) == 2
    run(repository, trt, options=Options(level=1))
    assert len(trt.configs) == 3
    plan = repository / "shop_dnn/1/model.plan"
    plan.write_bytes(plan.read_bytes()[:-1])
    (mended,) = run(repository, trt, options=Options(level=1))
    assert mended.built
    other = FakeTensorRT("10.4.0")
    (newer,) = run(repository, other, options=Options(level=1))
    assert newer.built


def refused(repository, trt, **options):
    """The error, after which no file has changed."""
    folder = repository / "shop_dnn" / "1"
    before = files(folder)
    with pytest.raises(EngineError) as caught:
        run(repository, trt, **options)
    assert files(folder) == before
    return caught.value


def test_an_unsupported_op_is_named_with_its_node(tmp_path, trt):
    text = MIXED.replace("[half] small = ReduceMax<axes = [2], keepdims = 0>", "[odd] small = NoSuchOp")
    error = refused(gpu_repository(tmp_path / "models", text=text), trt)
    assert f"unsupported op NoSuchOp at node odd: TensorRT {trt.__version__}" in error.message
    assert "--target cpu" in error.hint


@pytest.mark.parametrize("fails", [True, False])
def test_too_small_a_workspace(tmp_path, trt, fails):
    repository = gpu_repository(tmp_path / "models")
    run(repository, trt)
    trt.fail = fails
    trt.say = [
        (Severity.VERBOSE, "Skipping tactic 3 due to insufficient memory on requested size of 33554432"),
        (Severity.INFO, "Some tactics do not have sufficient workspace memory to run."),
    ]
    if fails:
        said = "Could not find any implementation for node X due to insufficient workspace."
        trt.say.append((Severity.ERROR, f"10: [optimizer.cpp::computeCosts::3869] Error Code 10: {said}"))
    error = refused(repository, trt, options=Options(workspace_mb=1), force=True)
    assert "a workspace of 1 MB is too small for TensorRT's kernels: it asks for 32 MB" in error.message
    assert "leave --workspace out" in error.hint
    assert "--workspace 32 is enough" in error.hint


def test_an_exhausted_gpu(tmp_path, trt):
    trt.fail = True
    said = "Requested amount of GPU memory (4096 bytes) could not be allocated."
    trt.say = [(Severity.ERROR, said)]
    error = refused(gpu_repository(tmp_path / "models"), trt)
    assert "the GPU has too little free memory to build the plan: Requested amount" in error.message
    assert "nvidia-smi" in error.hint


def test_a_builder_that_fails_otherwise_is_quoted(tmp_path, trt):
    trt.fail = True
    trt.say = [(Severity.INTERNAL_ERROR, "9: [a.cpp::b::1] Error Code 9: Internal Error (why)")]
    error = refused(gpu_repository(tmp_path / "models"), trt)
    assert error.message == "TensorRT could not build the plan: Error Code 9: Internal Error (why)"


def test_a_shape_that_the_plan_does_not_take(tmp_path, trt):
    trt.broken_shape = 5  # users
    error = refused(gpu_repository(tmp_path / "models"), trt)
    assert "the plan does not take 'user' as 5x8" in error.message


def test_fp32_that_became_fp16_is_refused(tmp_path, trt):
    trt.half_kernel_for = "large"
    error = refused(gpu_repository(tmp_path / "models"), trt)
    assert "layer large must compute in FP32, but TensorRT chose the FP16 kernel sm90_gemm" in error.message
    trt.half_kernel_for = "half"
    run(tmp_path / "models", trt)


def test_tensors_of_other_types_than_the_configs(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    config = repository / "shop_dnn/config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_FP16", "TYPE_FP32"))
    error = refused(repository, trt)
    assert error.message == "the plan's tensor 'user' is FP16, and config.pbtxt says FP32"


def test_no_gpu_and_gpus_of_two_kinds(tmp_path, monkeypatch, trt):
    repository = gpu_repository(tmp_path / "models")
    monkeypatch.setattr(build_engine, "visible_gpus", list)
    assert "needs an NVIDIA GPU, and none is visible here" in refused(repository, trt).message
    monkeypatch.setattr(build_engine, "visible_gpus", lambda: [H200, Gpu("NVIDIA A10", "8.6", 23028)])
    error = refused(repository, trt)
    assert "NVIDIA H200 and NVIDIA A10" in error.message
    assert "CUDA_VISIBLE_DEVICES" in error.hint


def test_a_driver_that_tensorrt_cannot_use(tmp_path):
    trt = FakeTensorRT("8.6.0")
    trt.no_gpu = True
    assert "TensorRT finds no GPU" in refused(gpu_repository(tmp_path / "models"), trt).message


def test_a_missing_onnx(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    (repository / "shop_dnn/1/model.onnx").unlink()
    assert "model.onnx is missing" in refused(repository, trt).message


_KILLED = """
import os, sys
from pathlib import Path
from bireme.engine.swap_plan import swap_plan
from bireme_runtime import passport as passports
folder, after = Path(sys.argv[1]), int(sys.argv[2])
replace = Path.replace
done = []
def dying(self, target):
    if len(done) == after:
        os.kill(os.getpid(), 9)
    done.append(target)
    return replace(self, target)
Path.replace = dying
import dataclasses
old = passports.read(folder)
swap_plan(folder, b"new plan", dataclasses.replace(old, plan=passports.described(b"new plan")), {})
"""


@pytest.mark.parametrize(("after", "serves"), [(0, "old"), (1, None), (2, "new")])
def test_killed_in_between_no_plan_is_served_with_anothers_passport(tmp_path, after, serves):
    repository = gpu_repository(tmp_path / "models")
    trt = FakeTensorRT("8.6.0")
    run(repository, trt)
    folder = repository / "shop_dnn/1"
    old = (folder / "model.plan").read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(folder), str(after)], env=os.environ, check=False
    )
    assert done.returncode == -9
    refusal = passports.check(folder, Here("8.6.0", H200))
    if serves is None:
        assert refusal is not None
        assert "bireme engine" in refusal.remedy
    else:
        assert refusal is None
        assert (folder / "model.plan").read_bytes() == (old if serves == "old" else b"new plan")
    (mended,) = run(repository, trt, force=serves == "new")
    assert mended.built == (serves != "old")
    assert passports.check(folder, Here("8.6.0", H200)) is None


def test_a_full_disk_leaves_the_old_plan(tmp_path, monkeypatch):
    repository = gpu_repository(tmp_path / "models")
    trt = FakeTensorRT("8.6.0")
    run(repository, trt)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    error = refused(repository, trt, force=True)
    assert "cannot be written: No space left on device" in error.message


def test_no_such_model(tmp_path, trt):
    repository = gpu_repository(tmp_path / "models")
    with pytest.raises(EngineError, match="--model other: is no GPU network") as caught:
        run(repository, trt, models=("other",))
    assert caught.value.hint == "its GPU networks are: shop_dnn"
    cpu = gpu_repository(tmp_path / "cpu", "cpu", handover="float16")
    with pytest.raises(EngineError, match="holds no network for a GPU"):
        run(cpu, trt)
    with pytest.raises(EngineError, match="does not exist"):
        run(Path(tmp_path / "nowhere"), trt)
