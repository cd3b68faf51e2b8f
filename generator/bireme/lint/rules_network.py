"""A config against the ONNX network beside it, and inputs that only some networks can take."""

from __future__ import annotations

from collections.abc import Iterator

from tritonclient.grpc.model_config_pb2 import DataType

from bireme.lint.finding import Issue, Model, Rule

__all__ = ["NETWORK_RULES"]


def _is_network(model: Model) -> bool:
    """Whether the model's tensors are those of the ONNX beside it."""
    return model.tensorrt or model.onnxruntime


def _fixed_batch(model: Model) -> Iterator[Issue]:
    if not _is_network(model) or model.config.max_batch_size < 2:
        return
    for name, shape in sorted(model.shapes.items()):
        if shape and shape[0] is not None and shape[0] != model.config.max_batch_size:
            yield Issue(
                "max_batch_size",
                f"is {model.config.max_batch_size}, and '{name}' of the network is made for {shape[0]}",
                "export the network with a free first dimension, or write max_batch_size: 0",
            )


def _other_dims(model: Model) -> Iterator[Issue]:
    if not _is_network(model):
        return
    skip = 1 if model.config.max_batch_size else 0
    for tensor in model.config.input:
        shape = model.shapes.get(tensor.name, ())
        dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
        pairs = list(zip(dims, shape[skip:], strict=False))
        if len(shape) - skip == len(dims) and any(b is not None and a not in (-1, b) for a, b in pairs):
            wanted = [-1 if size is None else size for size in shape[skip:]]
            yield Issue(
                f"input[{tensor.name}].dims",
                f"is {list(dims)}, and the network takes {wanted}",
                "write the network's dims, without the batch",
            )


def _other_type(model: Model) -> Iterator[Issue]:
    if not _is_network(model):
        return
    for tensor in model.config.input:
        wanted = model.types.get(tensor.name)
        given = DataType.Name(tensor.data_type)
        if wanted and given != wanted:
            yield Issue(
                f"input[{tensor.name}].data_type",
                f"is {given}, and the network takes {wanted}",
                "write the network's type, or cast in the network",
            )


def _ragged(model: Model) -> Iterator[Issue]:
    if model.config.batch_input or not _is_network(model):
        return
    for tensor in model.config.input:
        if tensor.allow_ragged_batch:
            yield Issue(
                f"input[{tensor.name}].allow_ragged_batch",
                "gives the network one row of all requests, and no batch_input says where each begins",
                "add batch_input, or pad and leave it out",
            )


NETWORK_RULES = (
    Rule(
        "N01",
        "error",
        "`max_batch_size` above the fixed first dimension of the ONNX",
        _fixed_batch,
        "the model does not load, or every batch fails (server#3014)",
        "export with a free first dimension",
    ),
    Rule(
        "N02",
        "error",
        "dims that are not the ONNX's",
        _other_dims,
        "the model does not load",
        "write the network's",
    ),
    Rule(
        "N03",
        "error",
        "a data type that is not the ONNX's",
        _other_type,
        "the model does not load (server#7307: INT64 ids with TensorRT 8 and 10)",
        "write the network's",
    ),
    Rule(
        "N04",
        "error",
        "`allow_ragged_batch` without `batch_input`, for TensorRT and ONNX Runtime",
        _ragged,
        "the network gets one row of everything (server#3851)",
        "add `batch_input`, or pad",
    ),
)
