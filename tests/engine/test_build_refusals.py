"""What `bireme engine` cannot build, and says so; nothing that was there before changes.

TensorRT and the GPU are stand-ins, as in test_build_engine.py; tests/gpu/test_gpu_engine.py has real ones.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine_helpers import H200, MIXED, gpu_repository, refused, run
from fake_tensorrt import FakeTensorRT, Severity

from bireme.engine import build_engine
from bireme.engine.options import Options
from bireme.errors import EngineError
from bireme_runtime.passport import Gpu

pytestmark = pytest.mark.usefixtures("one_gpu")


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


def test_no_kernel_fits_into_the_workspace(tmp_path, trt):
    """As 8.6 said on an H200, and no more: a network that is compiled as a whole, in 1 MB."""
    repository = gpu_repository(tmp_path / "models")
    said = "Could not find any implementation for node {ForeignNode[w_query...score]}."
    trt.say = [
        (Severity.ERROR, f"10: [optimizer.cpp::computeCosts::3873] Error Code 10: Internal Error ({said})")
    ]
    trt.fail = True
    error = refused(repository, trt, options=Options(workspace_mb=1))
    assert "a workspace of 1 MB is too small for TensorRT's kernels" in error.message
    assert "leave --workspace out" in error.hint
    error = refused(repository, trt, options=Options())
    assert "workspace" not in error.message
    assert "TensorRT could not build the plan" in error.message


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
