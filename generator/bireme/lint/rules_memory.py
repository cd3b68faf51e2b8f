"""Shared memory and RAM that the Python models of a repository need at least, against what there is.

An estimate from below: sizes of -1 count as `--variable` (1, if not given), strings as 4 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType

from bireme.lint.finding import Issue, Model, Rule

__all__ = ["MEMORY_RULES", "shm_need"]

_BYTES = {
    "TYPE_BOOL": 1,
    "TYPE_UINT8": 1,
    "TYPE_INT8": 1,
    "TYPE_UINT16": 2,
    "TYPE_INT16": 2,
    "TYPE_FP16": 2,
    "TYPE_BF16": 2,
    "TYPE_UINT32": 4,
    "TYPE_INT32": 4,
    "TYPE_FP32": 4,
    "TYPE_UINT64": 8,
    "TYPE_INT64": 8,
    "TYPE_FP64": 8,
    "TYPE_STRING": 4,
}
#: What a process's region has at first: --backend-config=python,shm-default-byte-size.
_DEFAULT_REGION = 1 << 20
#: /dev/shm of a container, where nobody asks for more.
_DOCKER = 64 << 20


def _processes(model: Model) -> int:
    return int(sum(max(1, group.count) for group in model.config.instance_group)) or 1


def _tensor_bytes(model: Model, tensor: Any) -> int:
    sizes = [model.settings.variable if size == -1 else size for size in tensor.dims]
    users = max(1, model.config.max_batch_size)
    return int(_BYTES.get(DataType.Name(tensor.data_type), 0) * users * math.prod(sizes))


def shm_need(model: Model) -> int:
    """Bytes of /dev/shm that a Python model's processes need at least, each with its largest batch."""
    if not model.python:
        return 0
    first = model.settings.backend_option("python", "shm-default-byte-size")
    region = int(first) if first is not None and first.isdecimal() else _DEFAULT_REGION
    tensors = [*model.config.input, *model.config.output]
    return _processes(model) * max(region, sum(_tensor_bytes(model, tensor) for tensor in tensors))


def _first_python(model: Model) -> bool:
    """Whether a finding about the whole repository belongs here: at its largest Python model."""
    models = [other for other in model.others.values() if other.python] or [model]
    return model.python and model.name == max(models, key=lambda other: (shm_need(other), other.name)).name


def _shm(model: Model) -> Iterator[Issue]:
    if model.settings.shm_bytes is not None:
        yield from _too_small(model, model.settings.shm_bytes, "--shm")


def _docker_shm(model: Model) -> Iterator[Issue]:
    if model.settings.shm_bytes is None:
        yield from _too_small(model, _DOCKER, "Docker's default; tell what there is: --shm")


def _too_small(model: Model, limit: int, of: str) -> Iterator[Issue]:
    if not _first_python(model):
        return
    need = sum(shm_need(other) for other in (model.others or {model.name: model}).values())
    if need > limit:
        yield Issue(
            "instance_group",
            f"and the other Python models need at least {need >> 20} MiB of /dev/shm; there are {limit >> 20}"
            f" MiB ({of})",
            f"give the container --shm-size={(need >> 20) * 2}m (Kubernetes: an emptyDir with medium Memory)",
        )


def _copies(model: Model) -> int:
    """Bytes of the data files that each process of a foreign Python model may read for itself."""
    if not model.python or model.folder is None or not model.versions:
        return 0
    version = model.versions[-1]
    if (version / "bireme_runtime").is_dir():
        return 0  # maps its tables: one copy for all processes
    files = [path for path in version.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    return _processes(model) * sum(path.stat().st_size for path in files)


def _memory(model: Model) -> Iterator[Issue]:
    limit = model.settings.memory_bytes
    need = _copies(model)
    if limit is not None and need > limit:
        yield Issue(
            "instance_group",
            f"starts {_processes(model)} processes, which hold {need >> 20} MiB if each reads its files;"
            f" there are {limit >> 20} MiB",
            "map the files (numpy.load with mmap_mode='r'), or lower count",
        )


MEMORY_RULES = (
    Rule(
        "M01",
        "error",
        "Python models that need more of /dev/shm than `--shm`",
        _shm,
        "a process dies, or the model does not load (server#3036)",
        "a larger /dev/shm",
    ),
    Rule(
        "M02",
        "error",
        "processes of a Python model whose files, once each, exceed `--memory`",
        _memory,
        "each instance is a process with tables of its own (server#4975)",
        "map the files",
    ),
    Rule(
        "M03",
        "warning",
        "Python models that need more of /dev/shm than a container has by default, 64 MiB",
        _docker_shm,
        "as M01, where nobody asks for more",
        "a larger /dev/shm, and `--shm` to tell it",
    ),
)
