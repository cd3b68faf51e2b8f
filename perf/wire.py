"""Requests as the bytes that travel, made once: sending one costs the load generator next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from bireme.requests import Request, to_tensors
from bireme_runtime.plan import Feature

__all__ = ["METHOD", "decode", "encode"]

METHOD = "/inference.GRPCInferenceService/ModelInfer"

Array = np.ndarray[Any, Any]


def encode(model: str, features: Sequence[Feature], request: Request) -> bytes:
    """A request to `model` as a serialised gRPC message.

    Args:
        model: name of the Triton model.
        features: what it takes.
        request: one user, N candidates.
    """
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in to_tensors(features, request).items():
        dtype = np_to_triton_dtype(array.dtype)
        message.inputs.add(name=name, datatype=dtype, shape=array.shape)
        message.raw_input_contents.append(_raw(array))
    return bytes(message.SerializeToString())


def decode(answer: bytes) -> dict[str, Array]:
    """Task → FP32 scores [users, N] of a serialised answer."""
    message = service_pb2.ModelInferResponse.FromString(answer)
    return {
        output.name: np.frombuffer(raw, dtype=np.float32).reshape(output.shape)
        for output, raw in zip(message.outputs, message.raw_output_contents, strict=True)
    }


def _raw(array: Array) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    if not array.size:
        return b""
    return bytes(serialize_byte_tensor(array).item())
