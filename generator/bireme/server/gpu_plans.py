"""Refuses a GPU network whose plan is missing or does not fit, before the server sees it.

Triton would say it late and in TensorRT's words, or end. What is here is asked of the driver and of the
TensorRT that the server will use; where that cannot be found out, only the files are compared, and a
gpu-python network itself looks again when it is loaded.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bireme.engine.network import GpuNetwork, network_in
from bireme.errors import ServerError
from bireme_runtime import passport as passports
from bireme_runtime.gpu_facts import library_version, package_version, visible_gpus
from bireme_runtime.passport import Gpu, Here, Refusal

__all__ = ["check_plans", "networks_in", "refused_plans"]

_CHOICE = "CUDA_VISIBLE_DEVICES"


def check_plans(repository: Path, environment: Mapping[str, str]) -> None:
    """Look at the plan and the passport of every GPU network that bireme built.

    Args:
        repository: one that `check_repository` let pass.
        environment: variables that the server gets on top of this process's, with their full new values.

    Raises:
        ServerError: a plan is missing, damaged, or for another TensorRT, GPU, network or shape.
        EngineError: a config.pbtxt of ours cannot be used.
    """
    for network, refusal in refused_plans(networks_in(repository), environment):
        raise ServerError(network.name, refusal.message, refusal.remedy)


def networks_in(repository: Path) -> list[GpuNetwork]:
    """The GPU networks that bireme built; none is no error.

    Raises:
        EngineError: a config.pbtxt of ours cannot be used.
    """
    found = (network_in(path.parent) for path in sorted(repository.glob("*/config.pbtxt")))
    return [network for network in found if network is not None]


def refused_plans(
    networks: Sequence[GpuNetwork], environment: Mapping[str, str]
) -> Iterator[tuple[GpuNetwork, Refusal]]:
    """Networks whose plans must not be loaded here, and why.

    Args:
        networks: of one repository.
        environment: see `check_plans`.
    """
    if not networks:
        return
    hidden = environment.get(_CHOICE, os.environ.get(_CHOICE)) != os.environ.get(_CHOICE)
    gpus = [] if hidden else visible_gpus()
    for network in networks:
        for here in _places(network, gpus, environment):
            refusal = passports.check(network.folder, here, network.needs)
            if refusal is not None:
                yield network, refusal


def _places(network: GpuNetwork, gpus: list[Gpu], environment: Mapping[str, str]) -> Iterator[Here]:
    """What would run the plan: each kind of GPU once; one of which nothing is known, if that is so."""
    if network.devices is None:
        yield Here()
        return
    chosen = [gpus[device] for device in network.devices if device < len(gpus)] if network.devices else gpus
    version = _tensorrt(network, environment)
    for gpu in dict.fromkeys(chosen) or (None,):
        yield Here(version, gpu)


def _tensorrt(network: GpuNetwork, environment: Mapping[str, str]) -> str | None:
    """The server's TensorRT; None: not known."""
    if network.kind == "tensorrt_plan":
        return library_version()
    # The Python backend takes its Python from PATH, and only of this one is it known what is installed.
    python = shutil.which("python3", path=environment.get("PATH", os.environ.get("PATH", os.defpath)))
    ours = python is not None and Path(python).parent == Path(sys.executable).parent
    return package_version() if ours else None
