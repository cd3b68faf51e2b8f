from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bireme.emitter import layout
from bireme.engine import build_engine, selfcheck

# The emitter's helpers make small contracts and artifacts.
sys.path.insert(0, str(Path(__file__).parent.parent / "emitter"))

from engine_helpers import H200
from fake_tensorrt import FakeTensorRT


@pytest.fixture(autouse=True)
def small_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the emitted models compute is beside the point here."""
    monkeypatch.setattr(layout, "model_source", lambda part: f"# {part}\n".encode())
    monkeypatch.setattr(layout, "runtime_files", lambda: {"__init__.py": b""})


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An H200 without a CUDA runtime: plans are built, and not executed."""

    def no_cuda(device: int) -> None:
        raise ValueError("the CUDA runtime library cannot be loaded")

    monkeypatch.setattr(build_engine, "visible_gpus", lambda: [H200])
    monkeypatch.setattr(build_engine, "driver_version", lambda: "580.159.04")
    monkeypatch.setattr(selfcheck, "Cuda", no_cuda)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["8.6.0", "10.3.0", "11.0.0"])
def trt(request: pytest.FixtureRequest) -> FakeTensorRT:
    """The stand-in for `tensorrt`, in each of its APIs."""
    return FakeTensorRT(request.param)
