"""Settings that abort the server, that cost something, or that a backend does not read."""

from __future__ import annotations

from collections.abc import Iterator

from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from bireme.lint.finding import Issue, Model, Rule

__all__ = ["SETTING_RULES"]


def _copy_stream(model: Model) -> Iterator[Issue]:
    if model.graphs and model.config.optimization.cuda.output_copy_stream:
        yield Issue(
            "optimization.cuda.output_copy_stream",
            "crashes together with graphs (server#5789; a double free after five requests was seen)",
            "leave it out",
        )


def _busy_wait(model: Model) -> Iterator[Issue]:
    optimization = model.config.optimization
    if model.graphs and optimization.cuda.busy_wait_events and optimization.eager_batching:
        yield Issue(
            "optimization.cuda.busy_wait_events",
            "was seen to abort the server together with graphs and eager_batching",
            "leave both out",
        )


def _eager(model: Model) -> Iterator[Issue]:
    optimization = model.config.optimization
    if model.graphs and optimization.eager_batching and not optimization.cuda.busy_wait_events:
        yield Issue(
            "optimization.eager_batching",
            "is one of three settings with which a server with graphs aborted; it was never run alone",
            "leave it out; a second instance overlaps gathering and execution as well",
        )


def _preferred(model: Model) -> Iterator[Issue]:
    sizes = list(model.config.dynamic_batching.preferred_batch_size)
    if (model.graphs or model.parameter("graphs") is not None) and sizes:
        yield Issue(
            "dynamic_batching.preferred_batch_size",
            f"is {sizes}: Triton cuts what waits to such sizes, where the next larger graph takes it whole",
            "leave it out",
        )


def _not_read(model: Model) -> Iterator[Issue]:
    """Fields of `optimization` that only some backends read."""
    optimization = model.config.optimization
    only = {
        "cuda": optimization.HasField("cuda"),
        "eager_batching": optimization.eager_batching,
        "gather_kernel_buffer_threshold": optimization.gather_kernel_buffer_threshold != 0,
        "priority": optimization.priority != 0,
    }
    if not model.tensorrt:
        for name, given in only.items():
            if given:
                yield Issue(
                    f"optimization.{name}",
                    f"is read by the TensorRT backend only; {model.backend} ignores it without a word",
                    "remove it" + (", or use --target gpu or gpu-python" if name == "cuda" else ""),
                )
    if optimization.HasField("execution_accelerators") and (model.tensorrt or model.backend == "python"):
        yield Issue(
            "optimization.execution_accelerators",
            f"is ignored by {model.backend} without a word",
            "remove it",
        )
    if optimization.HasField("graph") and (model.tensorrt or model.backend == "python"):
        yield Issue("optimization.graph", f"is ignored by {model.backend} without a word", "remove it")


def _kind(model: Model) -> Iterator[Issue]:
    if model.config.HasField("ensemble_scheduling"):
        return
    groups = list(model.config.instance_group)
    if not groups:
        yield Issue(
            "instance_group",
            "is left out: a process or instance on every visible GPU, or on the CPU if there is none",
            "write the kind: KIND_CPU or KIND_GPU",
        )
    for index, group in enumerate(groups):
        if group.kind == ModelInstanceGroup.KIND_AUTO:
            yield Issue(
                f"instance_group[{index}].kind",
                "is KIND_AUTO: GPU if there is one, else CPU, without a word",
                "write KIND_CPU or KIND_GPU",
            )
        elif group.kind != ModelInstanceGroup.KIND_GPU and _needs_gpu(model):
            yield Issue(
                f"instance_group[{index}].kind", "runs a TensorRT plan without a GPU", "write KIND_GPU"
            )


def _needs_gpu(model: Model) -> bool:
    return model.tensorrt or (model.backend == "python" and model.parameter("graphs") is not None)


def _profile(model: Model) -> Iterator[Issue]:
    for index, group in enumerate(model.config.instance_group):
        if group.profile and not model.tensorrt:
            yield Issue(
                f"instance_group[{index}].profile",
                f"is for the TensorRT backend; with {model.backend} the model does not load",
                "remove it",
            )


def _no_batch_size(model: Model) -> Iterator[Issue]:
    if model.text and "max_batch_size" not in model.text and model.backend != "python":
        yield Issue(
            "max_batch_size",
            "is left out: auto-complete may choose one and turn dynamic batching on",
            "write it, also when it is 0",
        )


def _is_network(model: Model) -> bool:
    """Whether the model's tensors are those of the ONNX beside it; a Python model may do more."""
    return _needs_gpu(model) or "onnxruntime" in model.backend


def _batch_in_dims(model: Model) -> Iterator[Issue]:
    """Against the ONNX beside it."""
    if not model.config.max_batch_size or not _is_network(model):
        return
    for tensor in model.config.input:
        rank = model.ranks.get(tensor.name)
        if rank is not None and len(tensor.dims) == rank:
            yield Issue(
                f"input[{tensor.name}].dims",
                f"is {list(tensor.dims)}, as many as the network's input has with the batch",
                "leave the batch out of the dims: max_batch_size stands for it",
            )


def _other_inputs(model: Model) -> Iterator[Issue]:
    """Against the ONNX beside it."""
    listed = {tensor.name for tensor in model.config.input}
    if model.ranks and _is_network(model) and listed != set(model.ranks):
        yield Issue(
            "input",
            f"lists {', '.join(sorted(listed))}; the network takes {', '.join(sorted(model.ranks))}",
            "build the repository again",
        )


SETTING_RULES = (
    Rule(
        "S01",
        "error",
        "`output_copy_stream` with graphs",
        _copy_stream,
        "crashes (server#5789)",
        "leave it out",
    ),
    Rule(
        "S02",
        "error",
        "`busy_wait_events` with `eager_batching` and graphs",
        _busy_wait,
        "the server aborted (measured, together with S01)",
        "leave both out",
    ),
    Rule(
        "S03",
        "warning",
        "`eager_batching` with graphs",
        _eager,
        "the third of these settings, never run alone",
        "leave it out",
    ),
    Rule(
        "S04",
        "warning",
        "`preferred_batch_size` with graphs",
        _preferred,
        "3 waiting users run as 2 and 1, where the graph for 4 takes all",
        "leave it out",
    ),
    Rule(
        "S05",
        "error",
        "fields of `optimization` that the model's backend does not read",
        _not_read,
        "ignored",
        "remove them",
    ),
    Rule(
        "S06",
        "error",
        "an instance group that is left out or has no clear kind; a plan on KIND_CPU",
        _kind,
        "a process on every GPU, or the CPU, without a word",
        "write KIND_CPU or KIND_GPU",
    ),
    Rule(
        "S07",
        "error",
        "`profile` for another backend than TensorRT's",
        _profile,
        "the model does not load",
        "remove it",
    ),
    Rule(
        "S10",
        "error",
        "`max_batch_size` left out (not the Python backend)",
        _no_batch_size,
        "auto-complete chooses, and may turn batching on",
        "write it, also when it is 0",
    ),
    Rule(
        "S11",
        "error",
        "dims that contain the batch, compared with the ONNX",
        _batch_in_dims,
        "shapes do not fit",
        "leave the batch out of the dims",
    ),
    Rule(
        "S12",
        "error",
        "inputs that are not the ONNX's",
        _other_inputs,
        "the plan has others",
        "build the repository again",
    ),
)
