"""Writes the eager models beside nothing else: a repository of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from baseline.repository import config_of
from gpu.variants import copy_model

__all__ = ["write_eager"]

_FILES = ("interpreter.py", "model.py")


def write_eager(
    source: Path, model: str, repository: Path, device: str, packages: str = "", whole: bool = False
) -> str:
    """Write one eager model; its name.

    Args:
        source: the repository of an emitted ensemble.
        model: the ensemble.
        repository: where to write.
        device: "cuda" or "cpu".
        packages: folder with torch and onnx, where the server's Python has none.
        whole: from raw features, with the ensemble's own feature step in the same process.
    """
    dense = f"{model}_dnn"
    name = f"{model}_whole_eager" if whole else f"{model}_eager"
    taken = config_of(source, f"{model}_preprocess" if whole else dense)
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=taken.max_batch_size,
        input=taken.input,
        output=config_of(source, dense).output,
    )
    kind = ModelInstanceGroup.KIND_GPU if device == "cuda" else ModelInstanceGroup.KIND_CPU
    config.instance_group.add(kind=kind, count=1)
    config.parameters["device"].string_value = device
    if packages:
        config.parameters["packages"].string_value = packages
    shutil.rmtree(repository / name, ignore_errors=True)
    if whole:
        copy_model(source, f"{model}_preprocess", repository)
        (repository / f"{model}_preprocess").rename(repository / name)
        for file in ("config.pbtxt", "1/model.py"):
            (repository / name / file).unlink()  # links: writing would change the originals
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    for file in _FILES:
        shutil.copyfile(Path(__file__).with_name(file), version / file)
    shutil.copyfile(source / dense / "1" / "model.onnx", version / "network.onnx")
    text = text_format.MessageToString(config)
    (repository / name / "config.pbtxt").write_text(text, encoding="utf-8")
    return name
