"""What one model needs of a host, from its config: pure."""

from __future__ import annotations

import math
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelInstanceGroup

from bireme.doctor.facts_repository import MIB

__all__ = ["CANDIDATES", "instances_of", "is_for_gpu", "region_of", "threads_of"]

#: Taken for a dimension that a config leaves open, where the repository names no bucket; and for a list
#: inside of such a dimension.
CANDIDATES, LIST = 512, 50
#: A string: four bytes of length, and this much text.
STRING = 4 + 12
#: What a region begins with, and the steps in which it grows: Triton's defaults (seen with 2.51).
REGION, GROWTH = MIB, MIB
_SIZES = {"BOOL": 1, "STRING": STRING, "BF16": 2}


def instances_of(config: Any, gpus: int) -> int:
    """Instances in all; at least one.

    Args:
        config: a ModelConfig.
        gpus: how many there are.
    """
    count = 0
    for group in config.instance_group:
        each = max(1, group.count)
        on_gpus = group.kind in (ModelInstanceGroup.KIND_GPU, ModelInstanceGroup.KIND_AUTO)
        count += each * (len(group.gpus) or max(1, gpus)) if on_gpus else each
    # Without a group there is one on every GPU.
    return count or max(1, gpus)


def is_for_gpu(config: Any) -> bool:
    """Whether it cannot do without a GPU."""
    if config.platform == "tensorrt_plan" or config.backend == "tensorrt":
        return True
    return any(group.kind == ModelInstanceGroup.KIND_GPU for group in config.instance_group)


def threads_of(config: Any) -> int:
    """Threads of one instance that are busy at the same time."""
    if "intra_op_threads" in config.parameters:
        text = config.parameters["intra_op_threads"].string_value
        return max(1, int(text)) if text.isdecimal() else 1
    return 1


def region_of(config: Any, candidates: int) -> int:
    """Bytes of /dev/shm that one Python instance may come to hold: its largest batch, in and out.

    Regions grow and never shrink (server#7481).

    Args:
        config: a ModelConfig.
        candidates: the most of one request.
    """
    users = max(1, config.max_batch_size)
    tensors: int = sum(users * _bytes(tensor, candidates) for tensor in (*config.input, *config.output))
    return REGION + math.ceil(tensors / GROWTH) * GROWTH


def _bytes(tensor: Any, candidates: int) -> int:
    """Of one user."""
    open_sizes = [candidates, *[LIST] * len(tensor.dims)]
    sizes = [size if size >= 0 else open_sizes.pop(0) for size in tensor.dims]
    name = DataType.Name(tensor.data_type).removeprefix("TYPE_")
    # INT64, UINT8, FP16 and their like carry their bits.
    bits = name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    width = _SIZES.get(name) or (int(bits) // 8 if bits.isdecimal() else 8)
    elements: int = math.prod(sizes)
    return elements * width
