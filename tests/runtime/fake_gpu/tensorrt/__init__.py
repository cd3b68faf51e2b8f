"""Stands in for NVIDIA's `tensorrt` (8.6) on machines without a GPU, together with fake_cudart.c.

A plan is JSON: inputs, outputs, profile, and a network that is either a few sums made from a seed or an ONNX
file that ONNX Runtime executes. An execution is a host function in the stream; the shapes and addresses of
the moment when it was enqueued stay with it, as in a captured kernel.

Like the original: a context whose shapes have changed must run once before a capture; shapes outside of the
profile are refused; two contexts share a profile only if the plan was built for it.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

__version__ = "8.6.0"
Array = np.ndarray[Any, Any]


class DataType(Enum):
    FLOAT = "float32"
    HALF = "float16"
    INT32 = "int32"
    BOOL = "bool"


class TensorIOMode(Enum):
    INPUT = 1
    OUTPUT = 2


class Severity(Enum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    Severity = Severity

    def log(self, severity: Severity, message: str) -> None:
        raise AssertionError(f"a logger must override log, which got {severity}: {message}")


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        try:
            return Engine(json.loads(plan), self._logger)
        except ValueError as error:
            self._logger.log(Severity.ERROR, f"cannot deserialize: {error}")
            return None


class Engine:
    def __init__(self, plan: dict[str, Any], logger: ILogger) -> None:
        self.plan, self.logger, self._contexts = plan, logger, 0
        self._tensors = {name: (dtype, dims) for name, dtype, dims in [*plan["inputs"], *plan["outputs"]]}
        self.num_io_tensors = len(self._tensors)
        self.device_memory_size = plan.get("scratch", 1 << 20)
        self.compute = network_of(plan)

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        inputs = [entry[0] for entry in self.plan["inputs"]]
        return TensorIOMode.INPUT if name in inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType(self._tensors[name][0])

    def get_tensor_shape(self, name: str) -> list[int]:
        return list(self._tensors[name][1])

    def get_tensor_profile_shape(self, name: str, index: int) -> list[list[int]]:
        return list(self.plan["profile"][name])

    def create_execution_context(self) -> ExecutionContext | None:
        scratch = ctypes.c_void_p()
        if _cudart().cudaMalloc(ctypes.byref(scratch), ctypes.c_size_t(self.device_memory_size)):
            self.logger.log(Severity.ERROR, "CUDA out of memory")
            return None
        self._contexts += 1
        shared = self.plan.get("shares_profile", False)
        return ExecutionContext(self, 0 if shared or self._contexts == 1 else -1, scratch)


class ExecutionContext:
    def __init__(self, engine: Engine, profile: int, scratch: ctypes.c_void_p) -> None:
        self._engine, self.active_optimization_profile, self._scratch = engine, profile, scratch
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._ran = False

    def __del__(self) -> None:
        _cudart().cudaFree(self._scratch)

    def set_optimization_profile_async(self, index: int, stream: int) -> bool:
        return self.active_optimization_profile == index

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, _, high = self._engine.plan["profile"][name]
        if len(shape) != len(low) or not all(map(_between, low, shape, high)):
            self._engine.logger.log(Severity.ERROR, f"{name}: {shape} is outside of the profile")
            return False
        self._ran = self._ran and self._shapes.get(name) == tuple(shape)
        self._shapes[name] = tuple(shape)
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self._shapes:
            return self._shapes[name]
        (last,) = (dims[1] for output, _, dims in self._engine.plan["outputs"] if output == name)
        users, *rest = self._shapes["items"] if "items" in self._shapes else next(iter(self._shapes.values()))
        return (users, rest[0] if last == -1 else last)

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return address % 256 == 0

    def execute_async_v3(self, stream: int) -> bool:
        library, plan = _cudart(), self._engine.plan
        if library.fakeIsCapturing(ctypes.c_void_p(stream)) and not self._ran:
            self._engine.logger.log(Severity.ERROR, "shapes changed: run once before capturing")
            return False
        self._ran = True
        shapes, addresses, compute = dict(self._shapes), dict(self._addresses), self._engine.compute

        def work() -> None:
            feeds = {
                name: _at(addresses[name], shapes[name], dtype).copy() for name, dtype, _ in plan["inputs"]
            }
            users = next(iter(feeds.values())).shape[0]
            rows = feeds["items"].shape[1] if "items" in feeds else None
            for (name, dtype, dims), result in zip(plan["outputs"], compute(feeds), strict=True):
                shape = (users, dims[1] if rows is None else rows)
                _at(addresses[name], shape, dtype)[...] = result

        _WORKS.append(work)
        library.fakeHostFunction(ctypes.c_void_p(stream), _CALL, ctypes.c_size_t(len(_WORKS) - 1))
        return True


def network_of(plan: dict[str, Any]) -> Callable[[dict[str, Array]], list[Array]]:
    """Inputs → outputs, in the plan's order."""
    if "onnx" in plan:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            base64.b64decode(plan["onnx"]), options, providers=["CPUExecutionProvider"]
        )
        names = [name for name, *_ in plan["outputs"]]
        return lambda feeds: list(session.run(names, feeds))

    def sums(feeds: dict[str, Array]) -> list[Array]:
        results = []
        for number, (_, _, dims) in enumerate(plan["outputs"]):
            rng = np.random.default_rng(plan["seed"] + number)
            total: Any = 0.0
            for name in sorted(feeds):
                values = feeds[name].astype(np.float64)
                if name == "items":
                    total = total + (values * rng.standard_normal(values.shape[-1])).sum(-1)
                elif "items" in feeds:
                    total = total + (values * rng.standard_normal(values.shape[-1])).sum(-1)[:, None]
                else:
                    weights = rng.standard_normal((values.shape[-1], dims[1]))
                    total = total + (values[:, :, None] * weights).sum(1)
            results.append(total)
        return results

    return sums


def _between(low: int, size: int, high: int) -> bool:
    return low <= size <= high


def _at(address: int, shape: tuple[int, ...], dtype: str) -> Array:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.ndarray(shape, dtype, memoryview((ctypes.c_char * size).from_address(address)))


_WORKS: list[Callable[[], None]] = []
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(lambda index: _WORKS[index]())
_LIBRARY: list[ctypes.CDLL] = []


def _cudart() -> ctypes.CDLL:
    if not _LIBRARY:
        _LIBRARY.append(ctypes.CDLL(os.environ["BIREME_CUDART"]))
    return _LIBRARY[0]
