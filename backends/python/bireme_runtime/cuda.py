"""As much of the CUDA runtime as serving a network takes, every call checked.

Streams, events, graphs and memory are plain integers here (their handles and addresses). Calls go through
ctypes, which lets other Python threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from typing import Any

import numpy as np

from . import cudart

__all__ = ["Cuda", "CudaError", "no_memory"]

_MEMORY, _NOT_READY, _NO_DEVICE, _OLD_DRIVER = 2, 600, 100, 35
_TO_DEVICE, _TO_HOST = 1, 2
_NON_BLOCKING_STREAM = 1
_BLOCKING_EVENT, _EVENT_WITHOUT_TIME = 1, 2
_EXTERNAL = 1
#: Only what this thread does is captured or refused meanwhile; other instances' threads are left alone.
_THREAD_LOCAL = 1
_MAJOR, _MINOR = 75, 76
_PROPERTIES_BYTES = 1 << 14


class CudaError(RuntimeError):
    """A call of the CUDA runtime failed.

    Args:
        function: its name.
        code: the cudaError_t.
        name: the code's name, such as cudaErrorMemoryAllocation.
        text: what CUDA says about it.
    """

    def __init__(self, function: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{function}: {text} ({name})")
        self.code = code


def no_memory(error: Exception) -> bool:
    """Whether a call failed for lack of memory, on the GPU or pinned."""
    return isinstance(error, CudaError) and error.code == _MEMORY


class Cuda:
    """The CUDA runtime on one GPU.

    Args:
        device: number of the GPU among the visible ones.

    Raises:
        ValueError: no CUDA runtime, no GPU or a driver too old for it; with what to do.
    """

    def __init__(self, device: int) -> None:
        self._library = cudart.load()
        #: number of the GPU
        self.device = device
        self.runtime_version = self._read(c_int, "cudaRuntimeGetVersion")
        try:
            count = self._read(c_int, "cudaGetDeviceCount")
        except CudaError as error:
            remedy = {
                _NO_DEVICE: "run it on a machine with an NVIDIA GPU, or build with --target cpu",
                _OLD_DRIVER: "install a newer NVIDIA driver, or an older CUDA runtime",
            }.get(error.code, "see what nvidia-smi says")
            raise ValueError(f"no NVIDIA GPU can be used: {error}; {remedy}") from None
        if device >= count:
            raise ValueError(f"GPU {device} does not exist: there are {count}; correct gpus in config.pbtxt")
        self.use()

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            self._library.cudaGetLastError()  # else the next caller that asks for it gets it
            name, text = (
                bytes(getattr(self._library, f"cudaGetError{what}")(code) or b"?").decode()
                for what in ("Name", "String")
            )
            raise CudaError(function, code, name, text)

    def _read(self, kind: Any, function: str, *arguments: Any) -> int:
        """What a function writes through its first argument."""
        result = kind()
        self._call(function, byref(result), *arguments)
        return result.value or 0

    # The GPU.

    def use(self) -> None:
        """Make the GPU this thread's; each thread that calls CUDA does so once."""
        self._call("cudaSetDevice", self.device)

    @property
    def name(self) -> str:
        """Such as "NVIDIA H200"."""
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        function = "cudaGetDeviceProperties"
        if hasattr(self._library, f"{function}_v2"):
            function += "_v2"
        self._call(function, properties, self.device)
        return properties.value.decode()

    @property
    def compute_capability(self) -> str:
        """Such as "9.0"."""
        numbers = (
            self._read(c_int, "cudaDeviceGetAttribute", which, self.device) for which in (_MAJOR, _MINOR)
        )
        return ".".join(map(str, numbers))

    def memory(self) -> tuple[int, int]:
        """Bytes of the GPU's memory: free, and all."""
        free, total = c_size_t(), c_size_t()
        self._call("cudaMemGetInfo", byref(free), byref(total))
        return free.value, total.value

    # Memory.

    def allocate(self, size: int) -> int:
        """Memory of the GPU, aligned to 256 bytes or more; its address."""
        return self._read(c_void_p, "cudaMalloc", max(size, 1))

    def free(self, address: int) -> None:
        """Give back what `allocate` gave."""
        self._call("cudaFree", address)

    def allocate_pinned(self, size: int) -> int:
        """Memory of the host that the GPU copies from and to without help; its address."""
        return self._read(c_void_p, "cudaMallocHost", max(size, 1))

    def free_pinned(self, address: int) -> None:
        """Give back what `allocate_pinned` gave; no array made of it may be used any more."""
        self._call("cudaFreeHost", address)

    def to_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from pinned memory, in the order of the stream."""
        self._call("cudaMemcpyAsync", target, source, size, _TO_DEVICE, stream)

    def to_host(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy into pinned memory, in the order of the stream."""
        self._call("cudaMemcpyAsync", target, source, size, _TO_HOST, stream)

    # Streams and events.

    def stream(self) -> int:
        """A new stream that does not wait for the default one."""
        return self._read(c_void_p, "cudaStreamCreateWithFlags", _NON_BLOCKING_STREAM)

    def synchronize(self, stream: int) -> None:
        """Wait for everything in a stream."""
        self._call("cudaStreamSynchronize", stream)

    def close_stream(self, stream: int) -> None:
        """Give a stream back."""
        self._call("cudaStreamDestroy", stream)

    def event(self, timed: bool = False) -> int:
        """A new event; a thread that waits for it sleeps.

        Args:
            timed: whether `elapsed` is asked of it.
        """
        flags = _BLOCKING_EVENT | (0 if timed else _EVENT_WITHOUT_TIME)
        return self._read(c_void_p, "cudaEventCreateWithFlags", flags)

    def record(self, event: int, stream: int, external: bool = False) -> None:
        """Have the event happen when the stream gets there.

        Args:
            event: the event.
            stream: the stream.
            external: while capturing: at each launch of the graph, for others to see.
        """
        if external:
            self._call("cudaEventRecordWithFlags", event, stream, _EXTERNAL)
        else:
            self._call("cudaEventRecord", event, stream)

    def wait(self, event: int, spin: float) -> None:
        """Wait for an event.

        Args:
            event: the event.
            spin: seconds to ask again and again, before the thread goes to sleep.
        """
        end = time.perf_counter() + spin
        while time.perf_counter() < end:
            code = self._library.cudaEventQuery(event)
            if code == 0:
                return
            if code != _NOT_READY:
                break  # The synchronization fails, too, and says how.
        self._call("cudaEventSynchronize", event)

    def elapsed(self, start: int, end: int) -> float:
        """Microseconds between two events that have happened; half a microsecond is the resolution."""
        result = c_float()
        self._call("cudaEventElapsedTime", byref(result), start, end)
        return result.value * 1000.0

    def close_event(self, event: int) -> None:
        """Give an event back."""
        self._call("cudaEventDestroy", event)

    # Graphs.

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        """Record what `work` puts into the stream, and make it a graph to launch.

        Raises:
            CudaError: something in it cannot be captured, or there is no memory for it.
        """
        with self._capturing(stream) as graph:
            work()
        executable = c_void_p()
        # Flags in CUDA 12, where nothing else follows; before, three places for error texts.
        rest = (0,) if self.runtime_version >= 12000 else (None, None, 0)
        try:
            self._call("cudaGraphInstantiate", byref(executable), graph.value, *rest)
        finally:
            self._call("cudaGraphDestroy", graph.value)
        return executable.value or 0

    @contextmanager
    def _capturing(self, stream: int) -> Iterator[c_void_p]:
        graph = c_void_p()
        self._call("cudaStreamBeginCapture", stream, _THREAD_LOCAL)
        try:
            yield graph
        except BaseException:
            # The stream must leave capture mode; that the capture is broken is known.
            if self._library.cudaStreamEndCapture(stream, byref(graph)) == 0 and graph.value:
                self._library.cudaGraphDestroy(graph.value)
            self._library.cudaGetLastError()
            raise
        self._call("cudaStreamEndCapture", stream, byref(graph))

    def launch(self, graph: int, stream: int) -> None:
        """Run a graph, in the order of the stream."""
        self._call("cudaGraphLaunch", graph, stream)

    def close_graph(self, graph: int) -> None:
        """Give a graph back."""
        self._call("cudaGraphExecDestroy", graph)


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array over memory that somebody else owns, and must keep.

    Args:
        address: of its first element.
        shape: its shape.
        dtype: its element type.
    """
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, memoryview(buffer))
