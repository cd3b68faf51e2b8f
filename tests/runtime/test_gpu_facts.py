"""Facts about GPU, driver and TensorRT.

NVIDIA's libraries and `nvidia-smi` are stand-ins here, as no GPU is; tests/gpu/test_gpu_engine.py asks the
real ones.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from bireme_runtime import gpu_facts
from bireme_runtime.passport import Gpu


def put(reference, value):
    ctypes.cast(reference, ctypes.POINTER(type(reference._obj)))[0] = value


def cuda(names, init=0):
    """A libcuda with these GPUs, 2 GiB each, compute capability 9.0."""

    def count(reference):
        put(reference, len(names))
        return 0

    def get(reference, index):
        put(reference, index)
        return 0

    def name(buffer, length, device):
        buffer.value = names[device.value].encode()
        return 0

    def memory(reference, device):
        put(reference, 2 << 30)
        return 0

    def attribute(reference, which, device):
        put(reference, {75: 9, 76: 0}[which])
        return 0

    return SimpleNamespace(
        cuInit=lambda flags: init,
        cuDeviceGetCount=count,
        cuDeviceGet=get,
        cuDeviceGetName=name,
        cuDeviceTotalMem_v2=memory,
        cuDeviceGetAttribute=attribute,
    )


@pytest.fixture
def libraries(monkeypatch):
    """Kind of library ("libcuda", …) → stand-in; what is not in it is not installed."""
    found: dict[str, object] = {}

    def load(names):
        return found.get(names[0].partition(".so")[0])

    monkeypatch.setattr(gpu_facts, "_load", load)
    monkeypatch.setattr(gpu_facts.shutil, "which", lambda name: None)
    return found


def smi(monkeypatch, tmp_path, text, status=0):
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    script.chmod(0o755)
    monkeypatch.setattr(gpu_facts.shutil, "which", lambda name: str(script))


def test_cuda_tells_its_gpus_in_its_order(libraries):
    libraries["libcuda"] = cuda(["NVIDIA H200", "NVIDIA A10"])
    assert gpu_facts.visible_gpus() == [Gpu("NVIDIA H200", "9.0", 2048), Gpu("NVIDIA A10", "9.0", 2048)]


def test_a_driver_that_does_not_start_means_no_gpu(libraries):
    libraries["libcuda"] = cuda(["NVIDIA H200"], init=100)
    assert gpu_facts.visible_gpus() == []


def test_without_the_library_nvidia_smi_is_asked(libraries, monkeypatch, tmp_path):
    assert gpu_facts.visible_gpus() == []
    smi(monkeypatch, tmp_path, "NVIDIA H200, 9.0, 143771")
    assert gpu_facts.visible_gpus() == [Gpu("NVIDIA H200", "9.0", 143771)]
    smi(monkeypatch, tmp_path, "NVIDIA-SMI has failed", status=9)
    assert gpu_facts.visible_gpus() == []


def test_the_driver(libraries, monkeypatch, tmp_path):
    def version(buffer, length):
        buffer.value = b"580.159.04"
        return 0

    libraries["libnvidia-ml"] = SimpleNamespace(
        nvmlInit_v2=lambda: 0, nvmlSystemGetDriverVersion=version, nvmlShutdown=lambda: 0
    )
    assert gpu_facts.driver_version() == "580.159.04"
    del libraries["libnvidia-ml"]
    proc = tmp_path / "version"
    proc.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6\nGCC version: 1\n")
    monkeypatch.setattr(gpu_facts, "_PROC", proc)
    assert gpu_facts.driver_version() == "535.54.03"
    proc.unlink()
    assert gpu_facts.driver_version() == ""


def test_the_version_of_a_library(libraries):
    assert gpu_facts.library_version() is None
    libraries["libnvinfer"] = SimpleNamespace(getInferLibVersion=lambda: 8601)
    assert gpu_facts.library_version() == "8.6.1"


@pytest.mark.parametrize(
    ("number", "text"), [(8600, "8.6.0"), (8510, "8.5.10"), (100300, "10.3.0"), (101300, "10.13.0")]
)
def test_version_numbers_as_text(number, text):
    assert gpu_facts.version_text(number) == text
