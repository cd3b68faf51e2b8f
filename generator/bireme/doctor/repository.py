"""Reads what a model repository needs of the host: configs, sizes of files, passports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.doctor import needs
from bireme.doctor.facts_repository import Model, Refusal, Repository
from bireme.errors import DoctorError, EngineError
from bireme.server.gpu_plans import networks_in, refused_plans
from bireme_runtime.library import is_whole, library_file

__all__ = ["read_repository"]

_MANIFEST = "bireme.json"
_RUNTIME = "bireme_runtime"


def read_repository(path: Path, environment: Mapping[str, str], gpus: int) -> Repository:
    """Read it.

    Args:
        path: the repository.
        environment: variables that the server gets on top of this process's.
        gpus: how many CUDA shows.

    Raises:
        DoctorError: it is none, or a config.pbtxt cannot be read.
    """
    folders = sorted(file.parent for file in path.glob("*/config.pbtxt"))
    if not folders:
        problem = "holds no model with a config.pbtxt" if path.is_dir() else "is not a folder"
        raise DoctorError(str(path), problem, "build it: bireme build, or name another with -r")
    configs = {folder: _config(folder) for folder in folders}
    candidates = max((_buckets(config) for config in configs.values()), default=0) or needs.CANDIDATES
    models = tuple(
        _model(folder, config, candidates, gpus)
        for folder, config in configs.items()
        if not config.HasField("ensemble_scheduling")
    )
    try:
        networks = networks_in(path)
        refused = [
            Refusal(network.name, refusal.message, refusal.remedy)
            for network, refusal in refused_plans(networks, environment)
        ]
        plans = tuple(network.name for network in networks)
    except EngineError as error:
        plans, refused = (), [Refusal(error.where, f"{error.where} {error.message}", error.hint)]
    return Repository(str(path), models, _built_for(folders), plans, tuple(refused))


def _config(folder: Path) -> Any:
    file = folder / "config.pbtxt"
    try:
        return text_format.Parse(file.read_text(encoding="utf-8"), ModelConfig())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        detail = " ".join(str(error).split())
        raise DoctorError(str(file), f"cannot be read: {detail}", "see `bireme lint`") from None


def _buckets(config: Any) -> int:
    """The largest; 0: it names none."""
    if "buckets" not in config.parameters:
        return 0
    parts = config.parameters["buckets"].string_value.split(",")
    return max((int(part) for part in parts if part.strip().isdecimal()), default=0)


def _model(folder: Path, config: Any, candidates: int, gpus: int) -> Model:
    version = _newest(folder)
    python = config.backend == "python"
    gpu = needs.is_for_gpu(config)
    networks = [_size(file) for file in version.glob("*.onnx")]
    return Model(
        name=folder.name,
        python=python,
        gpu=gpu,
        instances=needs.instances_of(config, gpus),
        threads=needs.threads_of(config),
        region=needs.region_of(config, candidates) if python else 0,
        tables=tuple(_size(file) for file in sorted(version.glob("arena_*.bin"))),
        # On a GPU the plan's weights go to its memory.
        private=0 if gpu else sum(networks),
        kernel=_kernel(version),
        onnxruntime=python and bool(networks) and not gpu,
    )


def _newest(folder: Path) -> Path:
    versions = [entry for entry in folder.iterdir() if entry.name.isdecimal()]
    return max(versions, key=lambda entry: int(entry.name), default=folder)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _kernel(version: Path) -> str:
    """Why the model's copy of the kernel would not run here. It is not loaded: it may be anybody's."""
    folder = version / _RUNTIME / "native"
    if not (version / _RUNTIME).is_dir() or not (version / "plan.json").is_file():
        return ""
    try:
        whole = is_whole((folder / library_file()).read_bytes())
    except OSError:
        others = ", ".join(sorted(path.name for path in folder.glob("*.so"))) or "none at all"
        return f"numpy kernels: there is no {library_file()}, but {others}"
    return "" if whole else f"numpy kernels: {library_file()} is damaged"


def _built_for(folders: list[Path]) -> int:
    """Cores that the repository's ensembles were built for; 0: not known."""
    found = 0
    for folder in folders:
        try:
            text = (folder / _MANIFEST).read_text(encoding="utf-8")
            found = max(found, int(json.loads(text)["instances"]["cores"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found
