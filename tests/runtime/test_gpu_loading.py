"""What is said when a network cannot be loaded onto the GPU.

The GPU, its CUDA runtime and TensorRT are stand-ins (`gpu_stand_ins`); tests/gpu/test_gpu_engine.py exhausts
the memory of a real one.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from gpu_stand_ins import make_plan, model_config, write_plan

from bireme_runtime.cuda import Cuda, CudaError
from bireme_runtime.gpu_loading import open_dense

BUCKETS = [4, 16]


@pytest.fixture
def version(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "shop_dnn" / "1"
    folder.mkdir(parents=True)
    return folder


def load(version: Path, **more: Any) -> Any:
    plan = make_plan(8, BUCKETS, {"items": 6, "user": 3}, **more)
    write_plan(version, plan, 8, BUCKETS)
    config = model_config(plan, 8, BUCKETS, graphs="1x4,8x16")
    return open_dense(version, config, 0, "shop_dnn_0_0", lambda _: None, lambda _: None)


def test_too_little_memory_for_the_lanes_and_then_enough(gpu: ctypes.CDLL, version: Path) -> None:
    used = gpu.fakeUsed()
    gpu.fakeLimits(used + (3 << 20), 0)
    with pytest.raises(ValueError, match="has too little memory for shop_dnn: 3 MB of") as caught:
        load(version, scratch=2 << 20)
    assert "2 MB for each of 2 lanes" in str(caught.value)
    assert "end what else is on the GPU" in str(caught.value)
    assert gpu.fakeUsed() == used  # nothing is left behind
    gpu.fakeLimits(used + (16 << 20), 0)
    load(version, scratch=2 << 20).close()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (2, "GPU 0 has too little memory for shop_dnn, even to begin (cudaSetDevice: why (name));"),
        (999, "GPU 0 cannot be used: cudaSetDevice: why (name); see what nvidia-smi says"),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_does_not_let_a_process_begin(
    version: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
) -> None:
    def use(self: Cuda) -> None:
        raise CudaError("cudaSetDevice", code, "name", "why")

    monkeypatch.setattr(Cuda, "use", use)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared below
        load(version)
    assert str(caught.value).startswith(message)
