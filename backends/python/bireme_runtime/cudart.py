"""Where the CUDA runtime library is, and how its functions are called from Python.

`load` finds `libcudart` without any package for it: TensorRT from PyPI brings none, NVIDIA's images and the
wheel `nvidia-cuda-runtime-cu12` each have it in another place.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from ctypes import c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

__all__ = ["VARIABLE", "load"]

#: environment variable with the path of a libcudart that is used and no other
VARIABLE = "BIREME_CUDART"
_NAMES = ("libcudart.so.12", "libcudart.so.13", "libcudart.so.11.0", "libcudart.so")
_P = ctypes.POINTER

#: Function → types of its arguments. All return a cudaError_t.
_SIGNATURES: dict[str, tuple[object, ...]] = {
    "cudaRuntimeGetVersion": (_P(c_int),),
    "cudaGetDeviceCount": (_P(c_int),),
    "cudaSetDevice": (c_int,),
    "cudaDeviceGetAttribute": (_P(c_int), c_int, c_int),
    "cudaMemGetInfo": (_P(c_size_t), _P(c_size_t)),
    "cudaMalloc": (_P(c_void_p), c_size_t),
    "cudaFree": (c_void_p,),
    "cudaMallocHost": (_P(c_void_p), c_size_t),
    "cudaFreeHost": (c_void_p,),
    "cudaMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "cudaStreamCreateWithFlags": (_P(c_void_p), c_uint),
    "cudaStreamSynchronize": (c_void_p,),
    "cudaStreamDestroy": (c_void_p,),
    "cudaEventCreateWithFlags": (_P(c_void_p), c_uint),
    "cudaEventRecord": (c_void_p, c_void_p),
    "cudaEventRecordWithFlags": (c_void_p, c_void_p, c_uint),
    "cudaEventQuery": (c_void_p,),
    "cudaEventSynchronize": (c_void_p,),
    "cudaEventElapsedTime": (_P(c_float), c_void_p, c_void_p),
    "cudaEventDestroy": (c_void_p,),
    "cudaStreamBeginCapture": (c_void_p, c_int),
    "cudaStreamEndCapture": (c_void_p, _P(c_void_p)),
    "cudaGraphLaunch": (c_void_p, c_void_p),
    "cudaGraphDestroy": (c_void_p,),
    "cudaGraphExecDestroy": (c_void_p,),
    "cudaGetLastError": (),
}


def load() -> ctypes.CDLL:
    """The CUDA runtime, with the types of its functions set.

    Raises:
        ValueError: there is none, or it lacks a function; the message says what to do.
    """
    named = os.environ.get(VARIABLE)
    places = [named] if named else list(_places())
    failures = []
    for place in places:
        try:
            return _typed(ctypes.CDLL(place))
        except (OSError, AttributeError) as error:
            # A name that the loader does not know is no news; a file that it cannot load is.
            if "/" in place:
                failures.append(str(error))
    wanted = f"{VARIABLE}={named}" if named else _NAMES[0]
    detail = f" ({'; '.join(failures)})" if failures else ""
    raise ValueError(
        f"the CUDA runtime library {wanted} cannot be loaded{detail}; install the Python package"
        " nvidia-cuda-runtime-cu12 where tritonserver runs, or put the library's folder into LD_LIBRARY_PATH"
    )


def _places() -> Iterator[str]:
    """What to try, best first; what TensorRT or the image has loaded already is found by its name."""
    yield from _NAMES
    folders = [Path(entry) / "nvidia" for entry in sys.path if entry]
    patterns = ("cuda_runtime/lib", "cu13/lib")
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [folder / pattern for folder in folders for pattern in patterns]
    folders += [home / "lib64" for home in (*homes, Path("/usr/local/cuda"))]
    for folder in folders:
        for name in _NAMES:
            if (folder / name).exists():
                yield str(folder / name)


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = list(arguments), c_int
    for name in ("cudaGetErrorName", "cudaGetErrorString"):
        function = getattr(library, name)
        function.argtypes, function.restype = [c_int], c_char_p
    # CUDA 12 took the three parameters for error texts out of this one.
    version = c_int()
    library.cudaRuntimeGetVersion(ctypes.byref(version))
    last = (c_ulonglong,) if version.value >= 12000 else (_P(c_void_p), c_char_p, c_size_t)
    library.cudaGraphInstantiate.argtypes = [_P(c_void_p), c_void_p, *last]
    library.cudaGraphInstantiate.restype = c_int
    # A struct that every CUDA version lays out anew; only its first field, the name, is read.
    properties = getattr(library, "cudaGetDeviceProperties_v2", None) or library.cudaGetDeviceProperties
    properties.argtypes, properties.restype = [c_void_p, c_int], c_int
    return library
