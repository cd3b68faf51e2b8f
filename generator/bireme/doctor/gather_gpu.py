"""Facts of GPUs, driver, TensorRT and MPS; on a machine without NVIDIA's software it is quick."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bireme.doctor.facts import Graphics, Mps
from bireme.doctor.gather_server import PythonFound
from bireme.server.mps import COMMAND
from bireme_runtime.gpu_facts import driver_version, library_version, visible_gpus

__all__ = ["find_graphics", "find_mps", "with_package"]

_DEVICES, _SHARED = Path("/dev"), Path("/dev/shm")
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT = "/tmp/nvidia-mps"
_SECONDS = 3


def find_graphics(environ: Mapping[str, str], devices: Path = _DEVICES) -> Graphics:
    """GPUs, driver and TensorRT's library; the Python package comes by `with_package`."""
    gpus = tuple(visible_gpus())
    return Graphics(
        gpus=gpus,
        devices=tuple(sorted(str(path) for path in devices.glob("nvidia[0-9]*"))),
        driver=driver_version(),
        hidden=environ.get("CUDA_VISIBLE_DEVICES"),
        library=library_version(),
        exclusive=bool(gpus) and _exclusive(),
    )


def with_package(graphics: Graphics, python: PythonFound) -> Graphics:
    """The same, with the version of tensorrt that the server's Python has."""
    return dataclasses.replace(graphics, package=python.tensorrt or None)


def _exclusive() -> bool:
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    asked = [command, "--query-gpu=compute_mode", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return "Exclusive_Process" in done.stdout


def find_mps(environ: Mapping[str, str]) -> Mps:
    """MPS as this process would find it."""
    directory = environ.get(_PIPES, _DEFAULT)
    pipe = Path(directory) / "control"
    try:
        owner = pipe.stat().st_uid
    except OSError:
        owner = -1
    command = shutil.which(COMMAND)
    there = owner >= 0
    answers = _answers(command) if there and command is not None else None
    shared = any(_SHARED.glob("cuda.shm.*"))
    given = _PIPES in environ
    return Mps(command is not None, directory, given, there, owner, os.getuid(), answers, shared)


def _answers(command: str) -> bool:
    try:
        done = subprocess.run(
            [command],
            input="get_server_list\n",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
