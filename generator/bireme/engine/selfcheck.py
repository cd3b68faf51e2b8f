"""Runs a fresh plan: every shape can be set, some are executed.

What comes out is not compared with anything: the serving host has no other engine for the network, and
`bireme verify --golden` compares scores. Inputs are small random numbers, so a value that is not finite is
worth a warning, not a refusal: a network may not be made for such inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.engine.options import Job
from bireme.errors import EngineError
from bireme_runtime.cuda import Cuda, CudaError

__all__ = ["check_engine"]

_NUMPY = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT32": np.int32,
    "INT64": np.int64,
    "BOOL": np.bool_,
}
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
        cuda = Cuda(0)
    except ValueError as error:
        return [f"the plan was not executed: {error}"]
    warnings = []
    chosen = [job.shapes[index] for index in (0, len(job.shapes) // 2, -1)]
    random = np.random.default_rng(_SEED)
    for shape in chosen:
        text = ", ".join(f"{name} {'x'.join(map(str, sizes))}" for name, sizes in shape.items())
        job.progress(f"executing {text}")
        try:
            results = _execute(engine, context, cuda, shape, random)
        except RuntimeError as error:  # CudaError is one
            hint = "end what else uses the GPU (nvidia-smi shows it)"
            raise EngineError(job.model, f"the plan cannot be executed ({text}): {error}", hint) from None
        odd = [name for name, values in results.items() if not np.isfinite(values).all()]
        if odd:
            warnings.append(f"{', '.join(odd)} is not finite for small random inputs ({text})")
    return warnings


def _execute(
    engine: Any, context: Any, cuda: Cuda, shape: Mapping[str, tuple[int, ...]], random: np.random.Generator
) -> dict[str, Array]:
    """Output → its values for random inputs."""
    for name, sizes in shape.items():
        context.set_input_shape(name, sizes)
    stream = cuda.stream()
    places: dict[str, int] = {}
    arrays: dict[str, Array] = {}  # kept until the copies are through
    try:
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            kind = _NUMPY[engine.get_tensor_dtype(name).name]
            array = arrays[name] = np.empty(tuple(context.get_tensor_shape(name)), kind)
            places[name] = cuda.allocate(array.nbytes)
            if name in shape:
                array[...] = random.standard_normal(array.shape) * _SPREAD
                cuda.to_device(places[name], array.ctypes.data, array.nbytes, stream)
            context.set_tensor_address(name, places[name])
        if not context.execute_async_v3(stream):
            raise RuntimeError("TensorRT did not enqueue it")
        results = {name: array for name, array in arrays.items() if name not in shape}
        for name, array in results.items():
            cuda.to_host(array.ctypes.data, places[name], array.nbytes, stream)
        cuda.synchronize(stream)
    finally:
        with contextlib.suppress(CudaError):  # what failed is known; the copies must be through
            cuda.synchronize(stream)
        for place in places.values():
            cuda.free(place)
        cuda.close_stream(stream)
    return results
