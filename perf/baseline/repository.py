"""Writes the Triton model `<name>_whole` beside an emitted ensemble."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from bireme.emitter.render import render
from bireme.errors import EmitError
from bireme.spec import FEATURES_PARAMETER, BuildSpec

#: The signature that takes the user once, where a SavedModel has one.
ONE_USER = "one_user"

__all__ = ["ONE_USER", "Setting", "config_of", "whole_name", "write_whole"]


@dataclass(frozen=True)
class Setting:
    """How the whole SavedModel is served.

    Args:
        instances: processes, each with a TensorFlow of its own.
        threads: TensorFlow's intra-op and inter-op threads in each.
        merge: whether Triton hands over all waiting requests at once (dynamic batching without delay).
        once: whether the SavedModel has a signature `one_user`, which takes the user once, and that is called
            instead of one that takes rows.
    """

    instances: int = 1
    threads: int = 1
    merge: bool = False
    once: bool = False

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read "2x1": 2 instances with 1 thread each; "2x1m" also merges, "2x1o" takes the user once.

        Raises:
            ValueError: the text says something else.
        """
        found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)([mo]?)", text)
        if found is None:
            raise ValueError(f"'{text}' is not INSTANCESxTHREADS, like 2x1, 2x1m or 2x1o")
        return cls(int(found[1]), int(found[2]), found[3] == "m", found[3] == "o")

    def __str__(self) -> str:
        return f"{self.instances}x{self.threads}{'m' * self.merge}{'o' * self.once}"


def whole_name(model: str) -> str:
    """Name of the baseline of ensemble `model`."""
    return f"{model}_whole"


def write_whole(
    spec: BuildSpec, saved_model: Path, repository: Path, setting: Setting, name: str = ""
) -> str:
    """Write the baseline into a repository that holds the ensemble; an older one is replaced.

    Args:
        spec: the ensemble's build spec: which signature, which outputs.
        saved_model: the SavedModel folder to serve; it is read from where it lies.
        repository: holds the emitted ensemble, whose request contract is taken over.
        setting: how to serve it.
        name: of the Triton model; empty: `whole_name`.

    Returns:
        The name of the Triton model.

    Raises:
        EmitError: the repository does not hold the ensemble.
    """
    name = name or whole_name(spec.model)
    ensemble = config_of(repository, spec.model)
    config = _config(name, ensemble, config_of(repository, f"{spec.model}_preprocess"), setting)
    tasks = [output.name for output in ensemble.output]
    settings = {
        "saved_model": str(saved_model.absolute()),
        "signature": ONE_USER if setting.once else spec.signature,
        "once": setting.once,
        "tasks": {task: spec.outputs.get(task, task) for task in tasks},
        "features": json.loads(ensemble.parameters[FEATURES_PARAMETER].string_value),
        "threads": setting.threads,
    }
    # Beside the repository, not in it: Triton takes every folder there for a model.
    with tempfile.TemporaryDirectory(dir=repository.parent) as folder:
        version = Path(folder) / name / "1"
        version.mkdir(parents=True)
        shutil.copyfile(Path(__file__).with_name("model.py"), version / "model.py")
        (version / "whole.json").write_text(json.dumps(settings, indent=1, sort_keys=True), encoding="utf-8")
        text = render(config, [f"The whole SavedModel of {spec.model!r}, for comparison with the ensemble."])
        (version.parent / "config.pbtxt").write_text(text, encoding="utf-8")
        shutil.rmtree(repository / name, ignore_errors=True)
        version.parent.rename(repository / name)
    return name


def config_of(repository: Path, model: str) -> Any:
    """The parsed config.pbtxt of a model.

    Raises:
        EmitError: there is none.
    """
    path = repository / model / "config.pbtxt"
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
    except OSError as error:
        raise EmitError(
            str(path), f"cannot be read: {error.strerror}", "build the repository first: bireme build"
        ) from None


def _config(name: str, ensemble: Any, preprocess: Any, setting: Setting) -> ModelConfig:
    """Inputs of the preprocess step, which are ragged so that requests can merge; outputs of the ensemble."""
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=ensemble.max_batch_size,
        input=preprocess.input,
        output=ensemble.output,
    )
    config.instance_group.add(kind=ModelInstanceGroup.KIND_CPU, count=setting.instances)
    if setting.merge:
        config.dynamic_batching.SetInParent()
    return config
