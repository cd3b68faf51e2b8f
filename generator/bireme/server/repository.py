"""Looks at a model repository before the server does.

Triton 2.51 waits for ever when a `model.py` is missing, starts without complaint on an empty repository, and
serves a model without a config.pbtxt as one without inputs. All of that is refused here, in words.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.errors import ServerError

__all__ = ["check_repository"]

_REBUILD = "build the repository again: bireme build (or make repo)"
_NO_ENGINE = (
    "build it on the GPU that will serve: bireme engine -r {repository} --model {model}; "
    "to serve here, without a GPU: bireme build --target cpu"
)
_ODD = re.compile(r"[^A-Za-z0-9./_+@=,-]")
_FILE_OF_BACKEND = {"python": "model.py", "onnxruntime": "model.onnx", "tensorrt": "model.plan"}
_BACKEND_OF_PLATFORM = {"onnxruntime_onnx": "onnxruntime", "tensorrt_plan": "tensorrt"}


def check_repository(repository: Path) -> tuple[str, ...]:
    """Names of the models in `repository`, each of which is complete as far as can be seen from outside.

    Raises:
        ServerError: the repository or a part of a model is missing or broken.
    """
    if not repository.is_dir():
        problem = "is not a folder" if repository.exists() else "does not exist"
        raise ServerError(str(repository), problem, _REBUILD)
    odd = sorted(set(_ODD.findall(str(repository.resolve()))))
    if odd:
        message = f"has {''.join(odd)!r} in its path, which Triton hands to a shell or cannot read"
        raise ServerError(str(repository), message, "move it to a path of letters, digits and ./_-+@=,")
    try:
        # Triton takes every folder for a model, hidden ones too; plain files it ignores.
        folders = sorted(entry for entry in repository.iterdir() if entry.is_dir())
    except OSError as error:
        raise ServerError(str(repository), f"cannot be read: {error.strerror}", "check its rights") from None
    if not folders:
        raise ServerError(str(repository), "holds no model", _REBUILD)
    configs = {folder.name: _config(folder) for folder in folders}
    for folder in folders:
        _check_model(folder, configs[folder.name], set(configs))
    return tuple(configs)


def _config(folder: Path) -> Any:
    file = folder / "config.pbtxt"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = f"{_REBUILD}; a folder that is no model must not lie in a model repository"
        raise ServerError(str(folder), "has no config.pbtxt", hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ServerError(str(file), f"cannot be read: {error}", _REBUILD) from None
    try:
        return text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        raise ServerError(str(file), f"does not parse: {error}", _REBUILD) from None


def _check_model(folder: Path, config: Any, models: set[str]) -> None:
    if config.name not in ("", folder.name):
        message = (
            f"its config.pbtxt names the model '{config.name}'; folder and model must be called the same"
        )
        raise ServerError(str(folder), message, _REBUILD)
    versions = sorted(int(e.name) for e in folder.iterdir() if e.is_dir() and e.name.isdecimal())
    if not versions:
        raise ServerError(str(folder), "has no version folder (such as 1/)", _REBUILD)
    for step in config.ensemble_scheduling.step:
        if step.model_name not in models:
            message = f"is an ensemble with the model '{step.model_name}', which is not in {folder.parent}"
            raise ServerError(str(folder), message, _REBUILD)
    backend = config.backend or _BACKEND_OF_PLATFORM.get(config.platform, "")
    default = config.default_model_filename or _FILE_OF_BACKEND.get(backend)
    files = [*config.cc_model_filenames.values(), *([default] if default else [])]
    newest = folder / str(versions[-1])
    if files and not any((newest / file).exists() for file in files):
        engine = _NO_ENGINE.format(repository=folder.parent, model=folder.name)
        remedy = engine if backend == "tensorrt" else _REBUILD
        raise ServerError(str(newest), f"has no {files[-1]}", remedy)
