"""The configs of the gpu target's dense network, a `tensorrt_plan`, and of the step that trims its scores."""

from __future__ import annotations

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from bireme.emitter.config_parts import DenseTensors, add_scores, merge_what_waits, on_cpu
from bireme.emitter.graphs import graphs, user_graphs
from bireme.emitter.tensors import COUNT, padded_names
from bireme.spec import Contract

__all__ = ["tensorrt_network", "trim_step"]


def tensorrt_network(name: str, tensors: DenseTensors, contract: Contract) -> ModelConfig:
    """A dense network as a TensorRT plan with explicit CUDA Graphs.

    * `items` is not ragged: requests of equal bucket merge, and TensorRT sees one rectangular batch.
    * graph_spec names *all* inputs, in the spec and in the bound: with one of them missing Triton loads the
      model, captures nothing and only logs it. The dims leave the users out, as `batch_size` says them.
    * graph_lower_bound is what makes Triton take the 8-user graph for 5 users; without it, or without `input`
      in it, only exact sizes are launched.
    * pinned memory is Triton's default; written out because the copies depend on it.
    * not set: output_copy_stream, busy_wait_events, eager_batching. With all three and graphs the server
      aborted after five requests (double free, H200), and which of them is to blame was not found out. What
      eager_batching would gain, gathering the next batch while one runs, a second instance gains as well.

    docs/tensorrt_config.md has every field of the message, also those left at Triton's default.
    """
    config = ModelConfig(
        name=name,
        platform="tensorrt_plan",
        default_model_filename="model.plan",
        max_batch_size=contract.max_users,
    )
    for tensor, (wire, dims) in tensors.inputs.items():
        config.input.add(name=tensor, data_type=wire, dims=dims)
    for tensor, (wire, dims) in tensors.outputs.items():
        config.output.add(name=tensor, data_type=wire, dims=dims)
    config.instance_group.add(kind=ModelInstanceGroup.KIND_GPU, count=contract.instances.dnn)
    merge_what_waits(config)
    config.optimization.input_pinned_memory.enable = True
    config.optimization.output_pinned_memory.enable = True
    config.optimization.cuda.graphs = True
    for fewest, users, bucket in _captured(tensors, contract):
        spec = config.optimization.cuda.graph_spec.add(batch_size=users)
        spec.graph_lower_bound.batch_size = fewest
        for shapes in (spec.input, spec.graph_lower_bound.input):
            for tensor, (_, dims) in tensors.inputs.items():
                shapes[tensor].dim.extend(bucket if size == -1 else size for size in dims)
    return config


def _captured(tensors: DenseTensors, contract: Contract) -> list[tuple[int, int, int]]:
    """(fewest users, users, bucket) of every graph; the bucket means nothing without candidates."""
    if tensors.ranks:
        return [(graph.fewest, graph.users, graph.bucket) for graph in graphs(contract)]
    return [(fewest, users, 0) for fewest, users in user_graphs(contract)]


def trim_step(contract: Contract) -> ModelConfig:
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
