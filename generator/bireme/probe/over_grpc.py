"""The probe's calls over gRPC."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc

from bireme.probe.fault import Counts, sum_up
from bireme.probe.tensors import Tensor
from bireme.probe.transport import LateError, Output, RefusedError, UnreachableError

__all__ = ["OverGrpc"]

# What Triton's clients allow: scores of many candidates pass gRPC's own 4 MB.
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
# Triton refuses a restricted call with the status that gRPC gives to a missing server.
_RESTRICTED = "is restricted"


class OverGrpc:
    """One channel, without TLS."""

    def __init__(self, url: str) -> None:
        self._channel = grpc.insecure_channel(url, _UNLIMITED)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def server_ready(self, timeout: float) -> bool:
        """What the server says about itself."""
        return bool(self._call("ServerReady", messages.ServerReadyRequest(), timeout).ready)

    def model_ready(self, model: str, timeout: float) -> bool:
        """What the server says about a model."""
        return bool(self._call("ModelReady", messages.ModelReadyRequest(name=model), timeout).ready)

    def config(self, model: str, timeout: float) -> dict[str, Any]:
        """A model's configuration."""
        answer = self._call("ModelConfig", messages.ModelConfigRequest(name=model), timeout)
        parsed: dict[str, Any] = json.loads(MessageToJson(answer.config, preserving_proto_field_name=True))
        return parsed

    def counts(self, timeout: float) -> dict[str, Counts]:
        """Model → requests answered."""
        counts: dict[str, Counts] = {}
        answer = self._call("ModelStatistics", messages.ModelStatisticsRequest(), timeout)
        for entry in answer.model_stats:
            stats = entry.inference_stats
            sum_up(counts, entry.name, stats.success.count, stats.fail.count)
        return counts

    def infer(self, model: str, inputs: Sequence[Tensor], timeout: float) -> dict[str, Output]:
        """Every output of a model."""
        request = messages.ModelInferRequest(model_name=model)
        for tensor in inputs:
            request.inputs.add(name=tensor.name, datatype=tensor.dtype, shape=tensor.shape)
            request.raw_input_contents.append(tensor.data)
        answer = self._call("ModelInfer", request, timeout)
        return {
            entry.name: Output(entry.datatype, tuple(entry.shape), data)
            for entry, data in zip(answer.outputs, answer.raw_output_contents, strict=True)
        }

    def _call(self, method: str, request: Any, timeout: float) -> Any:
        try:
            return getattr(self._stub, method)(request, timeout=timeout)
        except grpc.RpcError as error:
            status, said = error.code(), " ".join(str(error.details()).split())
            if status is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise LateError from None
            if status is grpc.StatusCode.UNAVAILABLE and _RESTRICTED not in said:
                raise UnreachableError(said) from None
            raise RefusedError(said) from None
