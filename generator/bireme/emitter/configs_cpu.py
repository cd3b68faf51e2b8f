"""The configs of the cpu target's dense network and of the fused model: ONNX Runtime in Python models."""

from __future__ import annotations

from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.emitter.config_parts import (
    DenseTensors,
    add_scores,
    describe_features,
    feature_inputs,
    merge_what_waits,
    on_cpu,
)
from bireme.spec import Contract

__all__ = ["cpu_network", "fused_model"]


def cpu_network(name: str, tensors: DenseTensors, contract: Contract) -> ModelConfig:
    """A dense network on ONNX Runtime.

    It pads and trims by itself, hence ragged candidates, and it reads its buckets, its threads and
    whether lists are whole (then it must not pad) from `parameters`.
    """
    config = ModelConfig(name=name, backend="python", max_batch_size=contract.max_users)
    for tensor, (wire, dims) in tensors.inputs.items():
        config.input.add(name=tensor, data_type=wire, dims=dims, allow_ragged_batch=-1 in dims)
    for tensor, (wire, dims) in tensors.outputs.items():
        config.output.add(name=tensor, data_type=wire, dims=dims)
    on_cpu(config, contract.instances.dnn)
    merge_what_waits(config)
    _tell_dense(config, contract)
    return config


def fused_model(contract: Contract) -> ModelConfig:
    """Raw features in, scores out: the feature plan and ONNX Runtime in one process of the Python backend.

    What clients see is the ensemble's: names, shapes, dtypes, and the parameter that describes features.
    """
    config = ModelConfig(
        name=contract.model,
        backend="python",
        max_batch_size=contract.max_users,
        input=feature_inputs(contract, ragged=True),
    )
    add_scores(config, contract, [-1])
    on_cpu(config, contract.instances.dnn)
    merge_what_waits(config)
    _tell_dense(config, contract)
    describe_features(config, contract)
    return config


def _tell_dense(config: ModelConfig, contract: Contract) -> None:
    """What `bireme_runtime.dense` reads."""
    config.parameters["buckets"].string_value = ",".join(map(str, contract.buckets))
    config.parameters["intra_op_threads"].string_value = str(contract.instances.dnn_threads or 1)
    if contract.listwise:
        config.parameters["listwise"].string_value = "true"
