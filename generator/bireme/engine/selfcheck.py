"""Runs a fresh plan: every shape can be set, some are executed.

What comes out is not compared with anything: the serving host has no other engine for the network, and
`bireme verify --golden` compares scores. Inputs are small random numbers, so a value that is not finite is
worth a warning, not a refusal: a network may not be made for such inputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.engine.options import Job
from bireme.errors import EngineError

__all__ = ["check_engine"]

_CUDART = ("libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0", "libcudart.so")
_NUMPY = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
}
_TO_DEVICE, _TO_HOST = 1, 2
_SPREAD = 0.1
_SEED = 1

Array = np.ndarray[Any, Any]


def check_engine(job: Job, engine: Any, context: Any) -> list[str]:
    """Set every shape of the job, execute the smallest, the middle and the largest.

    Returns:
        Warnings.

    Raises:
        EngineError: a shape cannot be set or executed.
    """
    job.progress("checking every shape")
    for shape in job.shapes:
        for name, sizes in shape.items():
            if not context.set_input_shape(name, sizes):
                text = "x".join(map(str, sizes))
                hint = "build it again with --force; if that does not help, report it"
                raise EngineError(job.model, f"the plan does not take '{name}' as {text}", hint)
    try:
        device = _Device()
    except OSError:
        return ["the plan was not executed: no libcudart was found"]
    warnings = []
    chosen = [job.shapes[index] for index in (0, len(job.shapes) // 2, -1)]
    random = np.random.default_rng(_SEED)
    for shape in chosen:
        text = ", ".join(f"{name} {'x'.join(map(str, sizes))}" for name, sizes in shape.items())
        job.progress(f"executing {text}")
        try:
            results = _execute(engine, context, device, shape, random)
        except _CudaError as error:
            hint = "end what else uses the GPU (nvidia-smi shows it)"
            raise EngineError(job.model, f"the plan cannot be executed ({text}): {error}", hint) from None
        odd = [name for name, values in results.items() if not np.isfinite(values).all()]
        if odd:
            warnings.append(f"{', '.join(odd)} is not finite for small random inputs ({text})")
    return warnings


class _CudaError(RuntimeError):
    """A call of the CUDA runtime failed."""


class _Device:
    """A few calls of the CUDA runtime. Raises OSError if there is none."""

    def __init__(self) -> None:
        for name in _CUDART:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                missing = error
        else:
            raise missing
        self._library.cudaGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise _CudaError(f"{name}: {self._library.cudaGetErrorString(code).decode()}")

    def allocate(self, size: int) -> int:
        place = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(place), ctypes.c_size_t(max(size, 1)))
        return place.value or 0

    def copy(self, target: Any, source: Any, size: int, way: int) -> None:
        self.call("cudaMemcpy", ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size), way)

    def free(self, place: int) -> None:
        self.call("cudaFree", ctypes.c_void_p(place))


def _execute(
    engine: Any, context: Any, device: _Device, shape: Mapping[str, tuple[int, ...]], random: Any
) -> dict[str, Array]:
    for name, sizes in shape.items():
        context.set_input_shape(name, sizes)
    stream = ctypes.c_void_p()
    device.call("cudaStreamCreate", ctypes.byref(stream))
    places: list[int] = []
    results: dict[str, Array] = {}
    where: dict[str, int] = {}
    try:
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            kind = _NUMPY[engine.get_tensor_dtype(name).name]
            array = np.empty(tuple(context.get_tensor_shape(name)), kind)
            if name in shape:
                array[...] = random.standard_normal(array.shape) * _SPREAD
            else:
                results[name] = array
            where[name] = device.allocate(array.nbytes)
            places.append(where[name])
            if name in shape:
                device.copy(where[name], array.ctypes.data, array.nbytes, _TO_DEVICE)
            context.set_tensor_address(name, where[name])
        if not context.execute_async_v3(stream.value):
            raise _CudaError("TensorRT did not enqueue it")
        device.call("cudaStreamSynchronize", stream)
        for name, array in results.items():
            device.copy(array.ctypes.data, where[name], array.nbytes, _TO_HOST)
    finally:
        for place in places:
            device.free(place)
        device.call("cudaStreamDestroy", stream)
    return results
