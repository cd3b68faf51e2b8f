"""The config of the gpu-python target's dense network: a TensorRT plan executed by a Python-backend model."""

from __future__ import annotations

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from bireme.emitter.config_parts import DenseTensors, merge_what_waits
from bireme.emitter.graphs import graphs, user_graphs
from bireme.spec import Contract

__all__ = ["LANES", "gpu_python_network"]

LANES = 2
"""Execution contexts in each process, each with a stream and buffers of its own: while one computes, the next
batch is copied into the other. A third would wait for the first."""


def gpu_python_network(name: str, tensors: DenseTensors, contract: Contract) -> ModelConfig:
    """A dense network in processes of the Python backend that each hold the plan on a GPU.

    * Candidates are ragged: as on the CPU the model pads and trims by itself, which saves a step.
    * KIND_GPU without `gpus`: `count` processes on every GPU that Triton sees; each is told which one is its.
    * `graphs` lists what every lane captures at load. Nothing under `optimization` would do it: the Python
      backend ignores that message.
    * not set: FORCE_CPU_ONLY_INPUT_TENSORS, whose default ("yes") is what is needed: inputs come from a CPU
      step, and the model copies them through pinned memory of its own.
    """
    config = ModelConfig(name=name, backend="python", max_batch_size=contract.max_users)
    for tensor, (wire, dims) in tensors.inputs.items():
        config.input.add(name=tensor, data_type=wire, dims=dims, allow_ragged_batch=-1 in dims)
    for tensor, (wire, dims) in tensors.outputs.items():
        config.output.add(name=tensor, data_type=wire, dims=dims)
    config.instance_group.add(kind=ModelInstanceGroup.KIND_GPU, count=contract.instances.dnn)
    merge_what_waits(config)
    config.parameters["buckets"].string_value = ",".join(map(str, contract.buckets))
    config.parameters["graphs"].string_value = _graph_list(tensors, contract)
    config.parameters["lanes"].string_value = str(LANES)
    if contract.listwise:
        config.parameters["listwise"].string_value = "true"
    return config


def _graph_list(tensors: DenseTensors, contract: Contract) -> str:
    """`users`x`bucket` of every graph; only users where the network knows no candidates."""
    if tensors.ranks:
        return ",".join(f"{graph.users}x{graph.bucket}" for graph in graphs(contract))
    return ",".join(str(users) for _, users in user_graphs(contract))
