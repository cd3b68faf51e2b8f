"""A TensorRT plan through the Python package `tensorrt` (8.6 to 10), without any other package for CUDA.

The plan's passport is checked first: what TensorRT does with a plan of another version, another GPU or half a
file ranges from a sentence of its own to the end of the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import passport
from .cuda import Cuda
from .gpu_shapes import Layout, Network, TensorType

__all__ = ["Context", "Engine"]

_CANDIDATES = "items"
_KINDS = ("float32", "float16", "int32", "int64", "int8", "uint8", "bool")


class Engine:
    """A plan that is ready to run.

    Args:
        plan: the plan's bytes.
        where: the file, for messages.
        note: gets what TensorRT says.

    Raises:
        ValueError: the package is missing, or it does not take the plan; with what to do.
    """

    def __init__(self, plan: bytes, where: Path, note: Callable[[str], None] = lambda _: None) -> None:
        self._trt = _tensorrt()
        self._where, self._plan = where, plan
        self._complaints: deque[str] = deque(maxlen=3)
        # TensorRT keeps no reference of its own to these two.
        self._logger = _logger(self._trt, self._complaints, note)
        self._runtime = self._trt.Runtime(self._logger)
        self._engine = self._deserialize()
        self._engines = [self._engine]
        #: bytes of the GPU's memory that each context takes beside the weights
        self.context_bytes = int(self._engine.device_memory_size)
        #: inputs and outputs
        self.network = self._network()
        #: most users of one execution
        self.most_users = min(
            int(self._engine.get_tensor_profile_shape(tensor.name, 0)[2][0]) for tensor in self.network.inputs
        )

    @classmethod
    def open(
        cls, folder: Path, cuda: Cuda, needs: passport.Needs, note: Callable[[str], None] = lambda _: None
    ) -> Engine:
        """Load the plan of a version folder, if its passport fits to what is here.

        Args:
            folder: `<repository>/<model>/<version>`.
            cuda: the GPU to serve on; the calling thread's.
            needs: what the model's config wants of the plan.
            note: gets what TensorRT says.

        Raises:
            ValueError: it cannot be served here; with what to do.
        """
        _, total = cuda.memory()
        gpu = passport.Gpu(cuda.name, cuda.compute_capability, total >> 20)
        refusal = passport.check(folder, passport.Here(version(), gpu), needs)
        if refusal is not None:
            raise ValueError(f"{refusal.message}; {refusal.remedy}")
        path = folder / passport.PLAN
        return cls(path.read_bytes(), path, note)

    def context(self, stream: int) -> Context:
        """A new execution context: executions of different contexts overlap.

        Args:
            stream: for what the context has to set up.

        Raises:
            MemoryError: TensorRT makes none.
        """
        context = self._try_context(self._engine, stream)
        if context is None:
            # Before TensorRT 10 only plans built for it let several contexts share one profile. A plan that
            # was not is loaded once more: the weights are then on the GPU twice.
            self._engines.append(self._deserialize())
            context = self._try_context(self._engines[-1], stream)
        if context is None:
            raise MemoryError(f"TensorRT makes no execution context of {self._where}{self._said()}")
        return Context(context, self._where, self._said)

    def _try_context(self, engine: Any, stream: int) -> Any:
        context = engine.create_execution_context()
        if context is None:
            return None
        if context.active_optimization_profile != 0 and not context.set_optimization_profile_async(0, stream):
            return None
        return context

    def _deserialize(self) -> Any:
        engine = self._runtime.deserialize_cuda_engine(self._plan)
        if engine is None:
            said = self._said()
            if "memory" in said.lower():
                raise MemoryError(f"TensorRT {version()} cannot load {self._where}{said}")
            raise ValueError(
                f"TensorRT {version()} does not take {self._where}{said}; build it anew on the GPU that will"
                " serve: bireme engine"
            )
        return engine

    def _said(self) -> str:
        """What TensorRT complained of lately; empties it."""
        said = "; ".join(self._complaints)
        self._complaints.clear()
        return f": {said}" if said else ""

    def _network(self) -> Network:
        engine = self._engine
        inputs, outputs = list[TensorType](), list[TensorType]()
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        ranks = _CANDIDATES in names
        for name in names:
            dims, dtype = tuple(engine.get_tensor_shape(name)), self._dtype(name)
            if engine.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT:
                per_candidate, group = name == _CANDIDATES, inputs
            else:
                # One score per candidate, or a state per user: [users, candidates] or [users, width].
                per_candidate, group = ranks, outputs
            tail = dims[2:] if per_candidate else dims[1:]
            if len(dims) < 2 or min(tail, default=1) < 1:
                raise ValueError(
                    f"{self._where}: {name!r} has shape {list(dims)}; only users and candidates may vary"
                )
            group.append(TensorType(name, dtype, per_candidate, tail))
        return Network(tuple(inputs), tuple(outputs))

    def _dtype(self, name: str) -> np.dtype[Any]:
        kind = self._engine.get_tensor_dtype(name)
        for known in _KINDS:
            # Not every version has every type.
            if kind == getattr(
                self._trt.DataType, {"float16": "HALF", "float32": "FLOAT"}.get(known, known.upper()), None
            ):
                return np.dtype(known)
        raise ValueError(f"{self._where}: {name!r} has type {kind}, which numpy has not")


class Context:
    """What one stream runs the network with; made by `Engine.context`."""

    def __init__(self, context: Any, where: Path, said: Callable[[], str]) -> None:
        self._context, self._where, self._said = context, where, said

    def bind(self, layout: Layout, inputs: int, outputs: int) -> None:
        """Set shapes and addresses for the executions that follow.

        Args:
            layout: of the shape.
            inputs: address of the inputs' block on the GPU.
            outputs: address of the outputs' block on the GPU.

        Raises:
            ValueError: outside of what the plan was built for.
        """
        context, fine = self._context, True
        for place in layout.inputs:
            fine = fine and context.set_input_shape(place.name, place.shape)
            fine = fine and context.set_tensor_address(place.name, inputs + place.offset)
        for place in layout.outputs:
            fine = fine and context.set_tensor_address(place.name, outputs + place.offset)
        if not fine:
            raise ValueError(f"{self._where} was not built for {layout.shape}{self._said()}")

    def enqueue(self, stream: int) -> None:
        """Put an execution into a stream.

        Raises:
            RuntimeError: TensorRT refuses.
        """
        if not self._context.execute_async_v3(stream):
            raise RuntimeError(f"TensorRT cannot run {self._where}{self._said()}")


def version() -> str:
    """Version of the package `tensorrt`.

    Raises:
        ValueError: it is not installed.
    """
    return str(_tensorrt().__version__)


def _tensorrt() -> Any:
    try:
        import tensorrt
    except ImportError as error:
        raise ValueError(
            f"the Python package tensorrt cannot be imported ({error}); install it where"
            " tritonserver runs, in the version that built the plan"
        ) from None
    return tensorrt


def _logger(trt: Any, complaints: deque[str], note: Callable[[str], None]) -> Any:
    severities = trt.ILogger.Severity

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (severities.ERROR, severities.INTERNAL_ERROR):
                complaints.append(message)
            if severity not in (severities.INFO, severities.VERBOSE):
                note(f"TensorRT: {message}")

    return Logger()
