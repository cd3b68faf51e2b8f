"""What each config.pbtxt is meant to say: a pure function from the contract to `ModelConfig` messages.

Every field set here has its reason beside it (processes and threads: instances.py); whatever is not set stays
Triton's default. The text of the files is made from these messages by `render`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInput, ModelInstanceGroup

from bireme.emitter.graphs import graphs
from bireme.emitter.tensors import COUNT, ITEMS, USER, check_contract, handed_over, padded_names, unused_all
from bireme.spec import FEATURES_PARAMETER, Contract

__all__ = [
    "WIRE",
    "add_scores",
    "connect_scores",
    "feature_inputs",
    "merge_what_waits",
    "model_configs",
    "on_cpu",
    "tensorrt",
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


def model_configs(contract: Contract) -> list[ModelConfig]:
    """The models of one ensemble in the order in which they may be loaded: the ensemble comes last.

    Raises:
        EmitError: Triton could not load what the contract says.
    """
    check_contract(contract)
    if contract.layout == "fused":
        return [_fused(contract)]
    if contract.target == "cpu":
        return [_preprocess(contract), _dnn_cpu(contract), _ensemble(contract)]
    return [_preprocess(contract), _dnn_gpu(contract), _postprocess(contract), _ensemble(contract)]


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


def add_scores(config: ModelConfig, contract: Contract, dims: list[int]) -> None:
    """One FP32 output per task: FP32 even from an FP16 network, so that close scores keep their order."""
    for task in contract.tasks:
        config.output.add(name=task, data_type="TYPE_FP32", dims=dims)


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
    if contract.target == "gpu":
        config.output.add(name=COUNT, data_type="TYPE_INT32", dims=[1])
    on_cpu(config, contract.instances.preprocess)
    merge_what_waits(config)
    return config


def _dnn_cpu(contract: Contract) -> ModelConfig:
    """The dense network on ONNX Runtime in the Python backend.

    It pads and trims by itself, hence ragged `items`, and it reads its buckets, its threads and
    whether lists are whole (then it must not pad) from `parameters`.
    """
    config = ModelConfig(name=contract.dnn, backend="python", max_batch_size=contract.max_users)
    handover = WIRE[contract.handover]
    for name, dims in handed_over(contract).items():
        config.input.add(name=name, data_type=handover, dims=dims, allow_ragged_batch=-1 in dims)
    add_scores(config, contract, [-1])
    on_cpu(config, contract.instances.dnn)
    merge_what_waits(config)
    _tell_dense(config, contract)
    return config


def _fused(contract: Contract) -> ModelConfig:
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
    _describe_features(config, contract)
    return config


def _tell_dense(config: ModelConfig, contract: Contract) -> None:
    """What `bireme_runtime.dense` reads."""
    config.parameters["buckets"].string_value = ",".join(map(str, contract.buckets))
    config.parameters["intra_op_threads"].string_value = str(contract.instances.dnn_threads or 1)
    if contract.listwise:
        config.parameters["listwise"].string_value = "true"


def _describe_features(config: ModelConfig, contract: Contract) -> None:
    """Tell clients what the dims do not: which side a feature is on, and which have a default."""
    described = [dataclasses.asdict(feature) for feature in contract.features]
    config.parameters[FEATURES_PARAMETER].string_value = json.dumps(described, sort_keys=True)


def _dnn_gpu(contract: Contract) -> ModelConfig:
    """The dense network as a TensorRT plan with explicit CUDA Graphs.

    * `items` is not ragged: requests of equal bucket merge, and TensorRT sees one rectangular batch.
    * graph_spec names *all* inputs, in the spec and in the bound: with one of them missing Triton loads the
      model, captures nothing and only logs it. The dims leave the users out, as `batch_size` says them.
    * graph_lower_bound is what makes Triton take the 8-user graph for 5 users; without it, or without `input`
      in it, only exact sizes are launched.
    * eager_batching: the next batch is gathered while the present one runs.
    * pinned memory is Triton's default; written out because the copies depend on it.
    * not set: output_copy_stream (crashes together with graphs, server#5789) and busy_wait_events (spins a
      whole core per instance, and the same crash was seen with both set).
    """
    config = tensorrt(contract.dnn, contract)
    handover = WIRE[contract.handover]
    tensors = handed_over(contract)
    for name, dims in tensors.items():
        config.input.add(name=name, data_type=handover, dims=dims)
    add_scores(config, contract, [-1])
    for graph in graphs(contract):
        spec = config.optimization.cuda.graph_spec.add(batch_size=graph.users)
        spec.graph_lower_bound.batch_size = graph.fewest
        for shapes in (spec.input, spec.graph_lower_bound.input):
            for name, dims in tensors.items():
                shapes[name].dim.extend(graph.bucket if size == -1 else size for size in dims)
    return config


def tensorrt(name: str, contract: Contract) -> ModelConfig:
    """What every TensorRT model has in common; tensors and graphs are missing."""
    config = ModelConfig(
        name=name,
        platform="tensorrt_plan",
        default_model_filename="model.plan",
        max_batch_size=contract.max_users,
    )
    config.instance_group.add(kind=ModelInstanceGroup.KIND_GPU, count=contract.instances.dnn)
    merge_what_waits(config)
    config.optimization.eager_batching = True
    config.optimization.input_pinned_memory.enable = True
    config.optimization.output_pinned_memory.enable = True
    config.optimization.cuda.graphs = True
    return config


def _postprocess(contract: Contract) -> ModelConfig:
    """Cuts the bucket padding off: a Slice on the C++ ONNX Runtime backend, no Python hop.

    Two requests with different `n` must never run together, because one Slice has one end. So the model
    declares max_batch_size 0 with the users written into the dims, which leaves no dimension to batch along.
    The alternative, max_batch_size = users without a batcher, would be silently wrong the day an
    auto-complete adds `dynamic_batching`; this one would at worst refuse to load. It cannot come to that as
    long as all inputs and outputs are listed: then ONNX Runtime's auto-complete does nothing.
    Inside the ensemble Triton hands a [users, bucket] tensor to a [-1, -1] input unchanged (seen on 2.51 for
    one and for several users).

    One single-threaded instance: a Slice takes microseconds, and a thread pool per session would idle.
    """
    config = ModelConfig(
        name=contract.postprocess,
        backend="onnxruntime",
        default_model_filename="model.onnx",
        max_batch_size=0,
    )
    for padded in padded_names(contract).values():
        config.input.add(name=padded, data_type="TYPE_FP32", dims=[-1, -1])
    config.input.add(name=COUNT, data_type="TYPE_INT32", dims=[-1, 1])
    add_scores(config, contract, [-1, -1])
    on_cpu(config, 1)
    for threads in ("intra_op_thread_count", "inter_op_thread_count"):
        config.parameters[threads].string_value = "1"
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
    _describe_features(config, contract)
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
    if contract.target == "cpu":
        dnn.output_map.update({task: task for task in contract.tasks})
        return
    preprocess.output_map[COUNT] = count
    dnn.output_map.update(padded)
    postprocess = config.ensemble_scheduling.step.add(model_name=contract.postprocess, model_version=-1)
    postprocess.input_map.update({name: padded[task] for task, name in padded_names(contract).items()})
    postprocess.input_map[COUNT] = count
    postprocess.output_map.update({task: task for task in contract.tasks})


def on_cpu(config: ModelConfig, count: int) -> None:
    """Say KIND_CPU: a group left out means one process per visible GPU on a GPU host."""
    config.instance_group.add(kind=ModelInstanceGroup.KIND_CPU, count=count)


def merge_what_waits(config: ModelConfig) -> None:
    """Batch requests that are already waiting, and never wait for more: no delay.

    Preferred sizes stay unset: with them Triton runs 3 waiting users as 2 and then 1 (seen on 2.51), although
    the 4-user graph takes all 3 at once.
    """
    config.dynamic_batching.SetInParent()
