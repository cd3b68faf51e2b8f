"""What GPU, driver and TensorRT are here, without a package of NVIDIA's: by ctypes, or by `nvidia-smi`.

The CUDA driver library comes first, as only it numbers the GPUs as CUDA does and leaves out those that
CUDA_VISIBLE_DEVICES hides. Asking it makes no context and takes no GPU memory. Names, attribute numbers and
signatures are those of cuda.h and nvml.h, which NVIDIA keeps stable.
"""

from __future__ import annotations

import csv
import ctypes
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from .passport import Gpu

__all__ = ["driver_version", "library_version", "package_version", "version_text", "visible_gpus"]

_CUDA = ("libcuda.so.1", "libcuda.so")
_NVML = ("libnvidia-ml.so.1", "libnvidia-ml.so")
# The newest first: a container that has two serves with the newer.
_NVINFER = tuple(f"libnvinfer.so.{major}" for major in (12, 11, 10, 8))
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_NAME_BYTES = 96
_MIB = 1 << 20
_SMI_SECONDS = 20
_PROC = Path("/proc/driver/nvidia/version")


def visible_gpus() -> list[Gpu]:
    """The GPUs that CUDA would use, in its order; empty where there is none, or no driver."""
    cuda = _load(_CUDA)
    if cuda is None:
        return _smi_gpus()
    try:
        return _cuda_gpus(cuda)
    except AttributeError:  # not a library of NVIDIA's
        return _smi_gpus()


def driver_version() -> str:
    """NVIDIA's driver, such as "580.159.04"; "" where it cannot be found out."""
    nvml = _load(_NVML)
    if nvml is not None:
        found = _nvml_driver(nvml)
        if found:
            return found
    try:
        words = _PROC.read_text(encoding="utf-8", errors="replace").splitlines()[0].split()
        return next(word for word in words if word[0].isdigit() and "." in word)
    except (OSError, IndexError, StopIteration):
        rows = _smi("driver_version")
        return rows[0][0] if rows else ""


def package_version() -> str | None:
    """Version of the Python package `tensorrt`, which is not imported; None where it is not installed."""
    try:
        return metadata.version("tensorrt")
    except metadata.PackageNotFoundError:
        return None


def library_version() -> str | None:
    """Version of the libnvinfer that the loader finds, the one of a C++ backend; None: there is none."""
    library = _load(_NVINFER)
    try:
        return version_text(int(library.getInferLibVersion())) if library is not None else None
    except AttributeError:
        return None


def version_text(number: int) -> str:
    """TensorRT's version number as text: 8601 is "8.6.1", 101300 is "10.13.0"."""
    scale = 10_000 if number >= 100_000 else 1_000
    return f"{number // scale}.{number % scale // 100}.{number % 100}"


def _load(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _cuda_gpus(cuda: Any) -> list[Gpu]:
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    found = []
    for index in range(count.value):
        device, memory = ctypes.c_int(), ctypes.c_size_t()
        major, minor = ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(_NAME_BYTES)
        failed = (
            cuda.cuDeviceGet(ctypes.byref(device), index)
            or cuda.cuDeviceGetName(name, _NAME_BYTES, device)
            or cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
            or cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
            or cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        )
        if not failed:
            capability = f"{major.value}.{minor.value}"
            found.append(Gpu(name.value.decode(errors="replace"), capability, memory.value // _MIB))
    return found


def _nvml_driver(nvml: Any) -> str:
    text = ctypes.create_string_buffer(_NAME_BYTES)
    try:
        if nvml.nvmlInit_v2():
            return ""
        failed = nvml.nvmlSystemGetDriverVersion(text, _NAME_BYTES)
        nvml.nvmlShutdown()
    except AttributeError:
        return ""
    return "" if failed else text.value.decode(errors="replace")


def _smi_gpus() -> list[Gpu]:
    rows = _smi("name,compute_cap,memory.total")
    return [Gpu(name, capability, int(memory)) for name, capability, memory in rows if memory.isdecimal()]


def _smi(fields: str) -> list[list[str]]:
    """Rows of `nvidia-smi --query-gpu`; empty where it is missing or fails."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    asked = [command, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    width = fields.count(",") + 1
    rows = ([cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines()))
    return [row for row in rows if len(row) == width]
