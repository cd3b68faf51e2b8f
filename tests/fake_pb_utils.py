"""Stands in for `triton_python_backend_utils`, so that a model.py runs in pytest without a server.

    model = FakeModel(repository / "ctr_preprocess")
    [scores] = model.execute([{"price": np.array([[1.0]], np.float32)}])

What it does as the real backend (server 2.51) does: one `execute` call for all requests; an optional input
that is left out is simply not there; BYTES inputs arrive as object arrays of bytes that went through this
module's `deserialize_bytes_tensor`, looked up at each call, so a model that replaces it is tested with its
own; text arrays (dtype "U") are refused; an exception in `execute` fails every request of the batch.

What it does not do: check inputs against config.pbtxt (the server does, before the model sees them), batch,
decoupled responses, other models (`InferenceRequest.exec`), GPU tensors and DLPack, metrics, shared memory,
processes, the model's folders on sys.path (the real one appends them). Requests are not copied: a model that
writes into its inputs changes the caller's arrays.
"""

from __future__ import annotations

import enum
import importlib.util
import json
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

Arrays = Mapping[str, np.ndarray]


class TritonModelException(Exception):  # noqa: N818
    pass


class _ErrorCode(enum.IntEnum):
    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonError:
    UNKNOWN = _ErrorCode.UNKNOWN
    INTERNAL = _ErrorCode.INTERNAL
    NOT_FOUND = _ErrorCode.NOT_FOUND
    INVALID_ARG = _ErrorCode.INVALID_ARG
    UNAVAILABLE = _ErrorCode.UNAVAILABLE
    UNSUPPORTED = _ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = _ErrorCode.ALREADY_EXISTS
    CANCELLED = _ErrorCode.CANCELLED

    def __init__(self, message: str, code: _ErrorCode = _ErrorCode.INTERNAL) -> None:
        if not isinstance(message, str):
            raise TypeError(f"TritonError takes text, not {type(message).__name__}")
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> _ErrorCode:
        return self._code

    def __repr__(self) -> str:
        return f"TritonError({self._message!r}, {self._code.name})"


class Logger:
    """`Logger.lines` holds (level, message) of everything logged."""

    lines: list[tuple[str, str]] = []  # noqa: RUF012

    @staticmethod
    def log_info(message: str) -> None:
        Logger.lines.append(("INFO", message))

    @staticmethod
    def log_warn(message: str) -> None:
        Logger.lines.append(("WARNING", message))

    @staticmethod
    def log_error(message: str) -> None:
        Logger.lines.append(("ERROR", message))

    @staticmethod
    def log_verbose(message: str) -> None:
        Logger.lines.append(("VERBOSE", message))


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"tensor {name!r} takes a numpy array, not {type(array).__name__}")
        if numpy_to_triton_type(array.dtype) is None:
            raise TritonModelException(f"tensor {name!r}: Triton has no type for numpy's {array.dtype}")
        # The stub copies a response's tensors into shared memory before it calls `execute` again.
        self._name, self._array = name, array.copy() if type(array) is np.ndarray else array
        self._shape = list(array.shape)

    @classmethod
    def received(cls, name: str, array: np.ndarray) -> Tensor:
        """As the stub builds an input: strings are decoded from their wire form before `execute`."""
        tensor = cls(name, array)
        if array.dtype.kind in "OS":
            wire = np.frombuffer(serialize_byte_tensor(array) or b"", np.uint8)
            tensor._array = deserialize_bytes_tensor(wire).reshape(array.shape)
        return tensor

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array

    def shape(self) -> list[int]:
        return self._shape

    def triton_dtype(self) -> int | None:
        return numpy_to_triton_type(self._array.dtype)

    def is_cpu(self) -> bool:
        return True


class InferenceRequest:
    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        *,
        inputs: Sequence[Tensor],
        requested_output_names: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        timeout: int = 0,
    ) -> None:
        self._id, self._correlation_id, self._inputs = request_id, correlation_id, list(inputs)
        self._outputs, self._timeout = set(requested_output_names), timeout
        self._parameters = json.dumps(dict(parameters or {}))

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def request_id(self) -> str:
        return self._id

    def correlation_id(self) -> int | str:
        return self._correlation_id

    def requested_output_names(self) -> set[str]:
        return self._outputs

    def parameters(self) -> str:
        return self._parameters

    def timeout(self) -> int:
        return self._timeout

    def is_cancelled(self) -> bool:
        return False


class InferenceResponse:
    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        if not all(isinstance(tensor, Tensor) for tensor in output_tensors):
            raise TypeError("output_tensors takes Tensor objects")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError("error takes a TritonError")
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class FakeModel:
    """A model folder of a repository, loaded as the Python backend loads it.

    Args:
        folder: holds config.pbtxt and VERSION/model.py.
        version: name of the version folder.
    """

    def __init__(self, folder: Path, version: str = "1") -> None:
        config = text_format.Parse((folder / "config.pbtxt").read_text(encoding="utf-8"), ModelConfig())
        # A real model has a process, and so this module, to itself: what an earlier one replaced is put back.
        globals()["deserialize_bytes_tensor"] = _stock_deserialize_bytes_tensor
        self.module = _import(folder / version / (config.default_model_filename or "model.py"))
        self.instance = self.module.TritonPythonModel()
        if hasattr(self.instance, "initialize"):
            self.instance.initialize(_arguments(folder, version, config))

    def execute(self, batch: Sequence[Arrays]) -> list[dict[str, np.ndarray] | TritonError]:
        """One call for all requests: input name → array in, output name → array (or the error) out, each."""
        requests = [
            InferenceRequest(inputs=[Tensor.received(name, array) for name, array in arrays.items()])
            for arrays in batch
        ]
        try:
            responses = self.instance.execute(requests)
        except Exception as error:
            return [TritonError(f"{type(error).__name__}: {error}") for _ in batch]
        if not isinstance(responses, list) or len(responses) != len(batch):
            raise AssertionError(f"execute must return a list of {len(batch)} responses, got {responses!r}")
        return [_result(response) for response in responses]

    def finalize(self) -> None:
        if hasattr(self.instance, "finalize"):
            self.instance.finalize()


def _result(response: InferenceResponse) -> dict[str, np.ndarray] | TritonError:
    error = response.error()
    if error is not None:
        return error
    return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def _import(file: Path) -> ModuleType:
    """Import a model.py under a name of its own, with this module in the place of the backend's.

    What the model puts on sys.path stays there for its imports at run time, as in the real process; modules
    that it vendors are shared by all models of a test session.
    """
    sys.modules["triton_python_backend_utils"] = sys.modules[__name__]
    spec = importlib.util.spec_from_file_location(f"model_{abs(hash(file))}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments(folder: Path, version: str, config: Any) -> dict[str, str]:
    """What `initialize` gets; every value is text, and so is Triton's JSON of the configuration."""
    raw = json_format.MessageToDict(config, preserving_proto_field_name=True)
    for tensor in [*raw.get("input", []), *raw.get("output", [])]:
        tensor["dims"] = [int(size) for size in tensor.get("dims", [])]  # Protobuf writes int64 as text
    raw.setdefault("parameters", {})
    return {
        "model_config": json.dumps(raw),
        "model_instance_kind": "CPU",
        "model_instance_name": f"{folder.name}_0_0",
        "model_instance_device_id": "0",
        "model_repository": str(folder),
        "model_version": version,
        "model_name": folder.name,
    }


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    return next((tensor for tensor in inference_request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    return next((tensor for tensor in inference_response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    return next((entry for entry in model_config.get("input", []) if entry["name"] == name), None)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> Any:
    return next((entry for entry in model_config.get("output", []) if entry["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


_TYPES = {
    "TYPE_BOOL": np.bool_,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}


def triton_string_to_numpy(triton_type_string: str) -> Any:
    return _TYPES[triton_type_string]


def numpy_to_triton_type(data_type: Any) -> int | None:
    """Number of the Triton type, None for a numpy type that has none."""
    kind = np.dtype(data_type)
    if kind.kind in "OS":
        return 13
    return next((number for number, known in enumerate(_TYPES.values(), start=1) if kind == known), None)


def serialize_byte_tensor(input_tensor: np.ndarray) -> Any:
    """Wire form: each string after its length in four little-endian bytes."""
    if input_tensor.size == 0:
        return ()
    parts = []
    for value in input_tensor.ravel().tolist():
        text = value if isinstance(value, bytes) else str(value).encode("utf-8")
        parts += [struct.pack("<I", len(text)), text]
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor: Any) -> np.ndarray:
    """The strings of a wire form, in a flat object array."""
    wire = bytes(encoded_tensor)
    strings, position = [], 0
    while position < len(wire):
        (length,) = struct.unpack_from("<I", wire, position)
        strings.append(wire[position + 4 : position + 4 + length])
        position += 4 + length
    flat = np.empty(len(strings), np.object_)
    flat[:] = strings
    return flat


_stock_deserialize_bytes_tensor = deserialize_bytes_tensor
