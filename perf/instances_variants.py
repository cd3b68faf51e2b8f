"""Writes an emitted ensemble a second time, under another name and with other numbers of instances."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

__all__ = ["Variant", "change_config", "write_variant"]

_NULL = Path(__file__).parent / "instances_null" / "model.py"


@dataclass(frozen=True, order=True)
class Variant:
    """How an ensemble is served.

    Args:
        preprocess: processes.
        dnn: processes.
        threads: of ONNX Runtime in each of them; 0: a DNN that costs nothing stands in for it.
    """

    preprocess: int
    dnn: int
    threads: int

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Read "2+1x4": 2 preprocess processes, 1 DNN process of 4 threads. "4+8n": 8 without work.

        Raises:
            ValueError: the text says something else.
        """
        found = re.fullmatch(r"([1-9]\d*)\+([1-9]\d*)(?:x([1-9]\d*)|n)", text)
        if found is None:
            raise ValueError(f"'{text}' is not PREPROCESS+DNNxTHREADS, like 2+1x1, or PREPROCESS+DNNn")
        return cls(int(found[1]), int(found[2]), int(found[3] or 0))

    def __str__(self) -> str:
        return f"{self.preprocess}+{self.dnn}{f'x{self.threads}' if self.threads else 'n'}"

    def name(self, model: str) -> str:
        """Of the ensemble in the repository."""
        return f"{model}_p{self.preprocess}d{self.dnn}t{self.threads}"


def write_variant(repository: Path, model: str, variant: Variant) -> str:
    """Add the variant to a repository that holds the ensemble; the files of the tables are not copied.

    Args:
        repository: holds `<model>`, `<model>_preprocess`, `<model>_dnn`, of the cpu target.
        model: name of the ensemble.
        variant: numbers to serve it with.

    Returns:
        The variant's name.
    """
    name = variant.name(model)

    def ensemble(config: Any) -> None:
        for step in config.ensemble_scheduling.step:
            step.model_name = name + step.model_name.removeprefix(model)

    def preprocess(config: Any) -> None:
        config.instance_group[0].count = variant.preprocess

    def dnn(config: Any) -> None:
        config.instance_group[0].count = variant.dnn
        config.parameters["intra_op_threads"].string_value = str(variant.threads)

    parts: dict[str, Callable[[Any], None]] = {"": ensemble, "_preprocess": preprocess, "_dnn": dnn}
    for part, change in parts.items():
        folder = repository / f"{name}{part}"
        shutil.copytree(repository / f"{model}{part}", folder, copy_function=_link)

        def rename(config: Any, name: str = folder.name, change: Callable[[Any], None] = change) -> None:
            config.name = name
            change(config)

        change_config(folder, rename)
    (repository / name / "bireme.json").unlink(missing_ok=True)
    if not variant.threads:
        source = repository / f"{name}_dnn" / "1" / "model.py"
        source.unlink()
        shutil.copyfile(_NULL, source)
    return name


def change_config(folder: Path, change: Callable[[Any], None]) -> None:
    """Change the config.pbtxt of a model; its head, one comment or more, is lost."""
    path = folder / "config.pbtxt"
    config = text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
    change(config)
    path.unlink()  # it may be another name of the original
    path.write_text(text_format.MessageToString(config), encoding="utf-8")


def _link(source: str, target: str) -> None:
    os.link(source, target)
