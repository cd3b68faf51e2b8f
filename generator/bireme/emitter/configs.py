"""What each config.pbtxt is meant to say: a pure function from the contract to `ModelConfig` messages.

Here are the models that all targets have; the dense network's are in configs_cpu.py, configs_tensorrt.py and
configs_gpu_python.py. Every field that is set has its reason beside it (processes and threads: instances.py);
whatever is not set stays Triton's default. The text of the files is made from these messages by `render`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.emitter.config_parts import (
    WIRE,
    DenseTensors,
    add_scores,
    dense_tensors,
    describe_features,
    feature_inputs,
    merge_what_waits,
    on_cpu,
)
from bireme.emitter.configs_cpu import cpu_network, fused_model
from bireme.emitter.configs_gpu_python import gpu_python_network
from bireme.emitter.configs_tensorrt import tensorrt_network, trim_step
from bireme.emitter.tensors import COUNT, ITEMS, USER, check_contract, handed_over, padded_names, unused_all
from bireme.spec import Contract, Target

__all__ = ["connect_scores", "model_configs", "network_config"]

_NETWORKS: dict[Target, Callable[[str, DenseTensors, Contract], ModelConfig]] = {
    "cpu": cpu_network,
    "gpu": tensorrt_network,
    "gpu-python": gpu_python_network,
}


def model_configs(contract: Contract) -> list[ModelConfig]:
    """The models of one ensemble in the order in which they may be loaded: the ensemble comes last.

    Raises:
        EmitError: Triton could not load what the contract says.
    """
    check_contract(contract)
    if contract.layout == "fused":
        return [fused_model(contract)]
    network = network_config(contract.dnn, dense_tensors(contract), contract)
    trim = [trim_step(contract)] if contract.padded else []
    return [_preprocess(contract), network, *trim, _ensemble(contract)]


def network_config(name: str, tensors: DenseTensors, contract: Contract) -> ModelConfig:
    """A dense network on the contract's target."""
    return _NETWORKS[contract.target](name, tensors, contract)


def _preprocess(contract: Contract) -> ModelConfig:
    """Raw features in, `user` and `items` out; for a `tensorrt_plan` also `n`, since it pads for it."""
    handover = WIRE[contract.handover]
    config = ModelConfig(
        name=contract.preprocess,
        backend="python",
        max_batch_size=contract.max_users,
        input=feature_inputs(contract, ragged=True),
    )
    for name, dims in handed_over(contract).items():
        config.output.add(name=name, data_type=handover, dims=dims)
    if contract.padded:
        config.output.add(name=COUNT, data_type="TYPE_INT32", dims=[1])
    on_cpu(config, contract.instances.preprocess)
    merge_what_waits(config)
    return config


def _ensemble(contract: Contract) -> ModelConfig:
    """The model that clients call. Triton allows it neither instances nor batching of its own."""
    config = ModelConfig(
        name=contract.model,
        platform="ensemble",
        max_batch_size=contract.max_users,
        input=feature_inputs(contract, ragged=False),
    )
    add_scores(config, contract, [-1])
    describe_features(config, contract)
    taken = {feature.name for feature in contract.features} | set(contract.tasks)
    user, items, count, *rest = unused_all([USER, ITEMS, COUNT, *padded_names(contract).values()], taken)
    padded = dict(zip(contract.tasks, rest, strict=True))

    preprocess = config.ensemble_scheduling.step.add(model_name=contract.preprocess, model_version=-1)
    preprocess.input_map.update({feature.name: feature.name for feature in contract.features})
    between = {name: {USER: user, ITEMS: items}[name] for name in handed_over(contract)}
    preprocess.output_map.update(between)
    dnn = config.ensemble_scheduling.step.add(model_name=contract.dnn, model_version=-1)
    dnn.input_map.update(between)
    connect_scores(config, contract, padded, count)
    return config


def connect_scores(config: ModelConfig, contract: Contract, padded: Mapping[str, str], count: str) -> None:
    """Lead an ensemble's scores out: as the DNN gives them, or cut by `postprocess` where they are padded.

    Args:
        config: an ensemble with two steps, `preprocess` and the DNN.
        contract: target and tasks.
        padded: task → what its padded scores are called in the ensemble.
        count: what the number of candidates is called there.
    """
    preprocess, dnn = config.ensemble_scheduling.step
    if not contract.padded:
        dnn.output_map.update({task: task for task in contract.tasks})
        return
    preprocess.output_map[COUNT] = count
    dnn.output_map.update(padded)
    postprocess = config.ensemble_scheduling.step.add(model_name=contract.postprocess, model_version=-1)
    postprocess.input_map.update({name: padded[task] for task, name in padded_names(contract).items()})
    postprocess.input_map[COUNT] = count
    postprocess.output_map.update({task: task for task in contract.tasks})
