"""Parameters and environments of the Python backend, and parameters that nobody reads.

Read in python_backend's README and src/python_be.cc; "served" was seen on tritonserver 24.10.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path

from bireme.lint.environments import python_minor, version_of
from bireme.lint.finding import Issue, Model, Rule
from bireme.lint.release import Release, releases

__all__ = ["KEYS", "PYTHON_RULES"]

_ENVIRONMENT = "EXECUTION_ENV_PATH"
_CPU_ONLY = "FORCE_CPU_ONLY_INPUT_TENSORS"
_HERE = "$$TRITON_MODEL_DIRECTORY"
#: Ubuntu 24.04 came with this release, and Python 3.12 with it; before it was 3.10.
_PYTHON_312 = Release(24, 11)

#: What the backends themselves read; a Python model may read any key.
KEYS: Mapping[str, frozenset[str]] = {
    "python": frozenset({_ENVIRONMENT, _CPU_ONLY}),
    "tensorrt": frozenset({"execution_context_allocation_strategy"}),
    "onnxruntime": frozenset(
        {
            "intra_op_thread_count",
            "inter_op_thread_count",
            "execution_mode",
            "enable_mem_arena",
            "enable_mem_pattern",
            "memory.enable_memory_arena_shrinkage",
            "arena_extend_strategy",
            "gpu_mem_limit",
            "cudnn_conv_algo_search",
            "cudnn_conv_use_max_workspace",
            "do_copy_in_default_stream",
            "session.intra_op.allow_spinning",
            "session.inter_op.allow_spinning",
            "session.use_device_allocator_for_initializers",
        }
    ),
}


def _kind(model: Model) -> str:
    if model.tensorrt:
        return "tensorrt"
    return "onnxruntime" if model.onnxruntime else model.backend


def _unread(model: Model) -> Iterator[Issue]:
    """A key that is nearly one of the backend's, or one of another backend's."""
    kind = _kind(model)
    known = KEYS.get(kind)
    for key in sorted(model.config.parameters) if known is not None else ():
        if key in (known or ()) or (kind == "python" and _mentions(model, key)):
            continue
        other = next((name for name, keys in KEYS.items() if key in keys), None)
        near = difflib.get_close_matches(key.lower(), [name.lower() for name in known or ()], 1, 0.7)
        if other is not None:
            why = f"is for the {other} backend; {model.backend} ignores it without a word"
            yield Issue(f"parameters[{key}]", why, "remove it")
        elif near:
            name = next(name for name in known or () if name.lower() == near[0])
            yield Issue(
                f"parameters[{key}]", "is no parameter of the backend, and is ignored", f"write {name}?"
            )


def _mentions(model: Model, key: str) -> bool:
    """Whether the model's own Python files name a key."""
    if not model.versions:
        return False
    files = sorted(model.versions[-1].glob("*.py"))
    return any(key in path.read_text(encoding="utf-8", errors="replace") for path in files)


def _cpu_only(model: Model) -> Iterator[Issue]:
    value = model.parameter(_CPU_ONLY)
    if model.python and value is not None and value not in ("yes", "no"):
        yield Issue(f"parameters[{_CPU_ONLY}]", f"is '{value}': the model does not load", "write yes or no")


def _gpu_tensors(model: Model) -> Iterator[Issue]:
    if model.python and model.parameter(_CPU_ONLY) == "no" and not _mentions(model, "dlpack"):
        yield Issue(
            f"parameters[{_CPU_ONLY}]",
            "is 'no', and model.py does not use DLPack: as_numpy fails on what comes from the GPU",
            "leave it out, or read inputs by to_dlpack",
        )


def _environment(model: Model) -> Iterator[Issue]:
    value = model.parameter(_ENVIRONMENT)
    if not model.python or value is None:
        return
    place = f"parameters[{_ENVIRONMENT}]"
    inside = f"write {_HERE}/<file>, with the file in the model's folder"
    if ".." in Path(value).parts:
        yield Issue(place, f"is '{value}', outside of the model's folder: not in a copy from S3", inside)
    elif not value.startswith(_HERE):
        what = (
            "an absolute path, of the machine that serves" if value.startswith("/") else "relative to where"
        )
        what += "" if value.startswith("/") else " the server was started"
        yield Issue(place, f"is '{value}', {what}", inside)
    elif (path := _path(model)) is not None and not path.exists():
        yield Issue(place, f"is '{value}', and there is no such file", "put it there: conda-pack")
    elif path is not None and path.is_symlink():
        yield Issue(
            place, f"is '{value}', a symbolic link, which copies of repositories lose", "put the file there"
        )


def _path(model: Model) -> Path | None:
    """The environment's place on this machine."""
    value = model.parameter(_ENVIRONMENT)
    if not model.python or value is None or model.folder is None or not value.startswith(_HERE):
        return None
    return model.folder / value[len(_HERE) :].lstrip("/")


def _minor(model: Model) -> Iterator[Issue]:
    path = _path(model)
    if (
        path is None
        or not path.exists()
        or (model.folder and list(model.folder.glob("*python_backend_stub")))
    ):
        return
    minor, release = python_minor(path), model.settings.triton
    stubs = {10, 12} if release is None else {12 if release >= _PYTHON_312 else 10}
    if minor is not None and minor not in stubs:
        has = " or ".join(f"3.{stub}" for stub in sorted(stubs))
        yield Issue(
            f"parameters[{_ENVIRONMENT}]",
            f"holds Python 3.{minor}, and the container's stub is for {has}",
            "make it with the stub's Python, or put a triton_python_backend_stub for it beside config.pbtxt",
        )


def _numpy(model: Model) -> Iterator[Issue]:
    path = _path(model)
    version = version_of(path, "numpy") if path is not None and path.exists() else None
    if version is not None and int(version.partition(".")[0]) >= 2:
        yield Issue(
            f"parameters[{_ENVIRONMENT}]",
            f"holds numpy {version}, which the stub of such a release does not know: inputs fail",
            "pack numpy below 2, or serve with 24.11 or later",
        )


PYTHON_RULES = (
    Rule(
        "K01",
        "warning",
        "a parameter that is nearly one of the backend's, or another backend's",
        _unread,
        "loads, and is ignored (served)",
        "write the backend's name for it, or remove it",
    ),
    Rule(
        "K02",
        "error",
        "`FORCE_CPU_ONLY_INPUT_TENSORS` that is neither yes nor no",
        _cpu_only,
        "the model does not load (served)",
        "write yes or no",
    ),
    Rule(
        "K03",
        "warning",
        "`FORCE_CPU_ONLY_INPUT_TENSORS: no` and a model.py without DLPack",
        _gpu_tensors,
        "`as_numpy` fails where a tensor comes from the GPU (server#3441)",
        "leave it out",
    ),
    Rule(
        "K04",
        "error",
        "`EXECUTION_ENV_PATH` that is relative, absolute, outside of the folder, a link, or not there",
        _environment,
        "another environment, or none (server#8290; not found: the model does not load, served)",
        "write `$$TRITON_MODEL_DIRECTORY/<file>`",
    ),
    Rule(
        "V03",
        "warning",
        "a packed environment whose Python is not the stub's",
        _minor,
        "it cannot be loaded (server#7121); 3.10 up to 24.10, then 3.12",
        "pack the stub's Python",
    ),
    Rule(
        "V04",
        "error",
        "a packed environment with numpy 2",
        _numpy,
        "the stub is built with a pybind11 that does not know it (python_backend#384)",
        "pack numpy below 2",
        releases(last="24.10"),
    ),
)
