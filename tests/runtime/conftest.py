"""The stand-in for a GPU, for the tests of this folder that ask for it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import pytest
from gpu_stand_ins import FOLDER, compile_cudart

from bireme_runtime.cudart import VARIABLE

#: what the stand-in has unless a test says otherwise
MEMORY = 1 << 40


@pytest.fixture(scope="session")
def _gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    library = compile_cudart(tmp_path_factory.mktemp("cudart"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(library))
        patch.syspath_prepend(str(FOLDER))
        patch.delitem(sys.modules, "tensorrt", raising=False)
        handle = ctypes.CDLL(str(library))
        handle.fakeLimits.argtypes = [ctypes.c_size_t, ctypes.c_int]
        handle.fakeUsed.restype = ctypes.c_size_t
        handle.fakeLaunches.restype = ctypes.c_long
        yield handle
        sys.modules.pop("tensorrt", None)


@pytest.fixture
def gpu(_gpu: ctypes.CDLL) -> Iterator[ctypes.CDLL]:
    """A stand-in GPU whose copies take 0.1 ms; `fakeLimits(bytes, microseconds)` changes it for a test."""
    _gpu.fakeLimits(MEMORY, 100)
    yield _gpu
    _gpu.fakeLimits(MEMORY, 0)
