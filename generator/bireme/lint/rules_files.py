"""The files of a model: names, versions, plans for several GPUs, warm-up data.

Read in core's src/model_repository_manager and src/model_config_utils.cc; "served" was seen on tritonserver
24.10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bireme.lint.finding import Issue, Model, Rule

__all__ = ["FILE_RULES"]

_CAPABILITY = re.compile(r"\d+\.\d+")
_LEFTOVER = re.compile(r".*(\.sw[a-p]|~|\.tmp|\.part|\.bak|\.orig)|\.DS_Store|\.nfs.*")


def _default_file(model: Model) -> str:
    if model.config.default_model_filename:
        return str(model.config.default_model_filename)
    if model.tensorrt:
        return "model.plan"
    if model.onnxruntime:
        return "model.onnx"
    return "model.py" if model.python else ""


def _versions(model: Model) -> Iterator[Issue]:
    if model.folder is None:
        return
    for path in sorted(model.folder.iterdir()):
        if path.is_dir() and path.name != "warmup" and re.fullmatch(r"0\d*|[vV]\d+", path.name):
            yield Issue("version_policy", f"does not reach folder {path.name}: it is no version", "name it 1")
    if model.ensemble:
        return  # a folder 1 is needed, and may be empty: git loses it, and `bireme serve` says so
    wanted = set(model.config.version_policy.specific.versions)
    missing = sorted(wanted - {int(path.name) for path in model.versions})
    if missing:
        listed = ", ".join(map(str, missing))
        yield Issue(
            "version_policy.specific.versions",
            f"asks for {listed}, which are not there: they are left out without a word, or nothing loads",
            "name versions that exist",
        )
    elif not model.versions:
        yield Issue("version_policy", "finds no version folder", "put the model into a folder 1")


def _name(model: Model) -> Iterator[Issue]:
    if model.folder is not None and model.config.name and model.config.name != model.folder.name:
        yield Issue("name", f"is '{model.config.name}' in folder {model.folder.name}", "write the same name")


def _file(model: Model) -> Iterator[Issue]:
    name = _default_file(model)
    capabilities = set(model.config.cc_model_filenames.values())
    for version in model.versions if name else ():
        present = {path.name for path in version.iterdir() if not path.name.startswith(".")}
        # A plan is built on the machine that serves it: until then there is its ONNX.
        to_be_built = model.tensorrt and any(path.endswith(".onnx") for path in present)
        if present and name not in present and not capabilities & present and not to_be_built:
            yield Issue(
                "default_model_filename",
                f"asks for {name}, which version {version.name} does not have",
                "put the file there, or name the one that is",
            )


def _capabilities(model: Model) -> Iterator[Issue]:
    for capability, name in sorted(model.config.cc_model_filenames.items()):
        place = f"cc_model_filenames[{capability}]"
        if not model.tensorrt:
            yield Issue(place, f"says nothing to {model.backend}: one file runs everywhere", "remove it")
        elif not _CAPABILITY.fullmatch(capability):
            yield Issue(place, "is no compute capability, and never matches", "write it as 9.0")
        elif model.versions and not all((version / name).exists() for version in model.versions):
            yield Issue(
                place, f"names {name}, which is not in every version", "build the plan: bireme engine"
            )


def _several_plans(model: Model) -> Iterator[Issue]:
    if not model.tensorrt or model.config.cc_model_filenames:
        return
    for version in model.versions:
        plans = sorted(path.name for path in version.glob("*.plan"))
        idle = [plan for plan in plans if plan != _default_file(model)]
        if idle and len(plans) > 1:
            yield Issue(
                "cc_model_filenames",
                f"does not name {', '.join(idle)} of version {version.name}: only one plan is read",
                "give each plan its compute capability: cc_model_filenames { key: '9.0' value: … }",
            )


def _leftovers(model: Model) -> Iterator[Issue]:
    folders = [model.folder, *model.versions] if model.folder is not None else []
    found = [
        path.name for folder in folders for path in sorted(folder.iterdir()) if _LEFTOVER.fullmatch(path.name)
    ]
    if found:
        yield Issue(
            "name",
            f"stands beside {', '.join(found[:4])}: any file that changes reloads the whole model when asked",
            "remove them, and publish by rename",
        )


def _warmup(model: Model) -> Iterator[Issue]:
    for index, warmup in enumerate(model.config.model_warmup):
        place = f"model_warmup[{index}]"
        if warmup.batch_size > max(1, model.config.max_batch_size):
            yield Issue(
                f"{place}.batch_size",
                f"is {warmup.batch_size}, above max_batch_size {model.config.max_batch_size}",
                "keep to it",
            )
        missing = [t.name for t in model.config.input if not t.optional and t.name not in warmup.inputs]
        if missing:
            yield Issue(f"{place}.inputs", f"lacks {', '.join(missing)}", "give every required input")
        for name, data in sorted(warmup.inputs.items()):
            yield from _warmup_data(model.folder, f"{place}.inputs[{name}]", data.input_data_file)


def _warmup_data(folder: Path | None, place: str, name: str) -> Iterator[Issue]:
    if folder is not None and name and not (folder / "warmup" / name).is_file():
        yield Issue(f"{place}.input_data_file", f"is {name}, and warmup/{name} is not there", "put it there")


FILE_RULES = (
    Rule(
        "F01",
        "error",
        "versions that are not there; folders such as `01` and `v1`, which are none",
        _versions,
        "ignored, or the model does not load (served)",
        "number folders from 1",
    ),
    Rule(
        "F02",
        "error",
        "a `name` that is not the folder's",
        _name,
        "the model does not load (served)",
        "write the folder's name, or none",
    ),
    Rule(
        "F03",
        "error",
        "a model file that is not there",
        _file,
        "the model does not load; with the Python backend the server goes on loading without end (served)",
        "put it there, or name the right one",
    ),
    Rule(
        "F04",
        "error",
        "`cc_model_filenames` with a key that is no compute capability, a missing file, or another backend",
        _capabilities,
        "never matches, or is ignored (served for the Python backend)",
        "write keys as 9.0",
    ),
    Rule(
        "F05",
        "warning",
        "several plans in a version and no `cc_model_filenames`",
        _several_plans,
        "only the default one is read, on every GPU",
        "name a plan for each compute capability",
    ),
    Rule(
        "F06",
        "warning",
        "files that an editor or a copy has left behind",
        _leftovers,
        "a changed file reloads the whole model (model_management.md)",
        "remove them",
    ),
    Rule(
        "F07",
        "error",
        "a warm-up with a missing input or file, or too large a batch",
        _warmup,
        "the model does not load (served)",
        "give every required input, within `max_batch_size`",
    ),
)
