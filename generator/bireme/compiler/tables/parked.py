"""Large variables leave the process's own memory: their values move into mapped files that have no name.

The original model stays as it is and can be run; but the memory of its tables is then the system's to drop
and to read again, so that the passes that follow do not need theirs on top of it.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.graph import tf

__all__ = ["park"]

#: Bytes from which on it is worth while.
LARGE = 64 << 20
_CHUNK = 32 << 20
_DTYPES = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)


def park(variables: Iterable[Any], folder: Path) -> Callable[[], None]:
    """Move the values of large variables into files in `folder`, which have no name and go with the process.

    Where that fails (no space, another kind of variable), a variable stays where it is.

    Returns:
        What makes the process let go of the pages that it has read since; they are read again when needed.
    """
    maps: list[mmap.mmap] = []
    for variable in variables:
        size = variable.dtype.size * int(np.prod(variable.shape, dtype=np.int64))
        if variable.dtype in _DTYPES and size >= LARGE:
            with contextlib.suppress(OSError, AttributeError):
                maps.append(_park(variable, folder))

    def let_go() -> None:
        for mapped in maps:
            mapped.madvise(mmap.MADV_DONTNEED)

    return let_go


def _park(variable: Any, folder: Path) -> mmap.mmap:
    value = variable.read_value()
    flat = np.asarray(memoryview(value)).reshape(-1).view(np.uint8)
    with tempfile.TemporaryFile(dir=folder) as file:
        for first in range(0, flat.size, _CHUNK):
            file.write(flat[first : first + _CHUNK].data)
        file.seek(0)
        for first in range(0, flat.size, _CHUNK):
            part = flat[first : first + _CHUNK]
            if file.read(part.size) != part.tobytes():
                raise OSError("what was written is not what is read")
        # Private and writable, as TensorFlow wants it; nothing writes to it.
        mapped = mmap.mmap(file.fileno(), flat.size, access=mmap.ACCESS_COPY)
    array = np.frombuffer(mapped, value.dtype.as_numpy_dtype).reshape(value.shape)
    shared = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    del flat, value
    variable.assign(shared, read_value=False)
    return mapped
