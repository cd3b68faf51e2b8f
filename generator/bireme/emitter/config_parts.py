"""What the models of several targets have in common: features as inputs, scores, groups, batching.

Every field set here and in configs*.py has its reason beside it (processes and threads: instances.py; all of
a TensorRT model's fields, also those left alone: docs/tensorrt_config.md).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelInstanceGroup

from bireme.emitter.tensors import handed_over
from bireme.spec import FEATURES_PARAMETER, Contract

__all__ = [
    "WIRE",
    "DenseTensors",
    "add_scores",
    "dense_tensors",
    "describe_features",
    "feature_inputs",
    "merge_what_waits",
    "on_cpu",
]

WIRE = {
    "string": "TYPE_STRING",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "float16": "TYPE_FP16",
    "bool": "TYPE_BOOL",
}


@dataclass(frozen=True)
class DenseTensors:
    """What a dense network takes and gives: tensor → (wire type, dims without the users).

    Candidates are a dim of -1. A network without any makes a state of the user (`--user-ahead`).
    """

    inputs: Mapping[str, tuple[str, list[int]]]
    outputs: Mapping[str, tuple[str, list[int]]]

    @property
    def ranks(self) -> bool:
        """Whether it knows candidates."""
        return any(-1 in dims for _, dims in self.inputs.values())


def dense_tensors(contract: Contract) -> DenseTensors:
    """Of the network of the one-shot ensemble."""
    handover = WIRE[contract.handover]
    return DenseTensors(
        inputs={name: (handover, dims) for name, dims in handed_over(contract).items()},
        outputs={task: ("TYPE_FP32", [-1]) for task in contract.tasks},
    )


def feature_inputs(contract: Contract, ragged: bool) -> list[ModelInput]:
    """The raw features as inputs, users (dimension 0) left out of the dims.

    `ragged` sets allow_ragged_batch wherever a length varies: without it Triton merges only requests with
    equal numbers of candidates, that is, hardly any.

    All are optional for Triton, whether they have a default or not: `preprocess` itself refuses a request
    that lacks one, by name. Triton 2.51, if some inputs are optional, just says "unexpected deadlock".
    """
    inputs = []
    for feature in contract.features:
        # A fixed length with padding is only the longest: `preprocess` fills up what is shorter.
        dims = [] if feature.length is None else [feature.length if feature.padding is None else -1]
        if feature.side == "item":
            dims = [-1, *dims]
        inputs.append(
            ModelInput(
                name=feature.name,
                data_type=WIRE[feature.dtype],
                dims=dims or [1],
                allow_ragged_batch=ragged and -1 in dims,
                optional=True,
            )
        )
    return inputs


def describe_features(config: ModelConfig, contract: Contract) -> None:
    """Tell clients what the dims do not: which side a feature is on, and which have a default."""
    described = [dataclasses.asdict(feature) for feature in contract.features]
    config.parameters[FEATURES_PARAMETER].string_value = json.dumps(described, sort_keys=True)


def add_scores(config: ModelConfig, contract: Contract, dims: list[int]) -> None:
    """One FP32 output per task: FP32 even from an FP16 network, so that close scores keep their order."""
    for task in contract.tasks:
        config.output.add(name=task, data_type="TYPE_FP32", dims=dims)


def on_cpu(config: ModelConfig, count: int) -> None:
    """Say KIND_CPU: a group left out means one process per visible GPU on a GPU host."""
    config.instance_group.add(kind=ModelInstanceGroup.KIND_CPU, count=count)


def merge_what_waits(config: ModelConfig) -> None:
    """Batch requests that are already waiting, and never wait for more: no delay.

    Preferred sizes stay unset: with them Triton runs 3 waiting users as 2 and then 1 (seen on 2.51), although
    the 4-user graph takes all 3 at once.
    """
    config.dynamic_batching.SetInParent()
