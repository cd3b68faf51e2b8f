"""Large variables lie in mapped files that have no name, not in the process's own memory.

The original model stays as it is and can be run; but the memory of its tables is then the system's to drop
and to read again, so that the passes that follow do not need theirs on top of it.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.graph import tf
from bireme.compiler.tables.mapped import mappings
from bireme.compiler.tables.tidy import give_back

__all__ = ["park", "parking"]

#: Bytes from which on it is worth while.
LARGE = 1 << 20
#: Bytes that are read at once and share a file, or more, so that there are about `_FILES` of these: every
#: mapping keeps its file open, of which a process may have a thousand.
GROUP = 64 << 20
_FILES = 100
_CHUNK = 4 << 20
_DTYPES = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)


@contextlib.contextmanager
def parking(folder: Path | None) -> Iterator[None]:
    """Within, large variables that TensorFlow restores from a checkpoint go into files, group after group.

    Otherwise it has all of them in memory before it assigns the first (`_single_shard_restore` in
    tensorflow/python/checkpoint/functional_saver.py, which has no public hook). Where it restores in another
    way, as it does TensorFlow 1 SavedModels, they are for `park`.

    Args:
        folder: where the files go; None: nothing is changed.
    """
    from tensorflow.python.checkpoint import functional_saver

    name = "_single_shard_restore"
    whole = getattr(functional_saver, name, None)
    if folder is None or whole is None:
        yield
        return
    setattr(functional_saver, name, _in_groups(whole, folder))
    try:
        yield
    finally:
        setattr(functional_saver, name, whole)


def park(variables: Iterable[Any], folder: Path) -> None:
    """Move the values of large variables into files in `folder`, which have no name and go with the process.

    Where that fails (no space, another kind of variable), a variable stays where it is, and so do those that
    `parking` has put there.
    """
    there = mappings(folder)
    sized = [(v, _size(v.dtype, v.shape)) for v in variables]
    large = [(v, size) for v, size in sized if size >= LARGE]
    with contextlib.suppress(OSError, AttributeError):
        left = [
            (v, size) for v, size in large if not any(a <= _address(v) < a + length for a, length in there)
        ]
        for group in _groups(left):
            for variable, shared in zip(group, _park([v.read_value() for v in group], folder), strict=True):
                variable.assign(shared, read_value=False)


def _in_groups(whole: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """TensorFlow's `_single_shard_restore`, called for the small tensors and for one group after another."""

    def restore(prefix: Any, wanted: Sequence[Any], options: Any = None) -> dict[str, dict[Any, Any]]:
        sizes = _sizes(prefix, wanted) if tf.executing_eagerly() else [0] * len(wanted)
        small = [one for one, size in zip(wanted, sizes, strict=True) if size < LARGE]
        large = [(one, size) for one, size in zip(wanted, sizes, strict=True) if size >= LARGE]
        restored: dict[str, dict[Any, Any]] = whole(prefix, small, options) if small else {}
        give_back()
        for group in _groups(large):
            for key, slices in _parked_slices(whole(prefix, group, options), folder).items():
                restored.setdefault(key, {}).update(slices)
        return restored

    return restore


def _parked_slices(found: dict[str, dict[Any, Any]], folder: Path) -> dict[str, dict[Any, Any]]:
    """Checkpoint key → slice → tensor, the tensors in a file, if there is space for it."""
    tensors = [tensor for slices in found.values() for tensor in slices.values()]
    try:
        shared = iter(_park(tensors, folder))
    except (OSError, AttributeError):
        return found
    return {key: {part: next(shared) for part in slices} for key, slices in found.items()}


def _sizes(prefix: Any, wanted: Sequence[Any]) -> list[int]:
    """Bytes of tensors in a checkpoint; 0 for kinds that cannot be parked."""
    shapes = tf.train.load_checkpoint(prefix.numpy().decode()).get_variable_to_shape_map()
    return [_size(one.dtype, shapes.get(one.checkpoint_key, [0])) for one in wanted]


def _size(dtype: Any, shape: Any) -> int:
    """Bytes of a tensor; 0 for kinds that cannot be parked."""
    return int(dtype.size * np.prod(shape, dtype=np.int64)) if dtype in _DTYPES else 0


def _address(variable: Any) -> int:
    return int(np.asarray(memoryview(variable.read_value())).ctypes.data)


def _groups(things: Sequence[tuple[Any, int]]) -> Iterator[list[Any]]:
    """Things with their sizes, in order, in groups that share a file."""
    most = max(GROUP, sum(size for _, size in things) // _FILES)
    group: list[Any] = []
    total = 0
    for thing, size in things:
        if group and total + size > most:
            yield group
            group, total = [], 0
        group.append(thing)
        total += size
    if group:
        yield group


def _park(tensors: Sequence[Any], folder: Path) -> list[Any]:
    """The same tensors, in one mapped file.

    Raises:
        OSError: no space, or the file does not hold what was written.
    """
    firsts = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for tensor in tensors:
            file.write(bytes(-file.tell() % mmap.PAGESIZE))  # TensorFlow wants them aligned
            firsts.append(file.tell())
            for part in _parts(tensor):
                file.write(part.data)
        end = file.tell()
        for first, tensor in zip(firsts, tensors, strict=True):
            file.seek(first)
            for part in _parts(tensor):
                if file.read(part.size) != part.tobytes():
                    raise OSError("what was written is not what is read")
        # Private and writable, as TensorFlow wants it; nothing writes to it.
        mapped = mmap.mmap(file.fileno(), end, access=mmap.ACCESS_COPY)
    return [_view(mapped, first, tensor) for first, tensor in zip(firsts, tensors, strict=True)]


def _parts(tensor: Any) -> Iterator[np.ndarray[Any, Any]]:
    flat = np.asarray(memoryview(tensor)).reshape(-1).view(np.uint8)
    for first in range(0, flat.size, _CHUNK):
        yield flat[first : first + _CHUNK]


def _view(mapped: mmap.mmap, first: int, tensor: Any) -> Any:
    """A tensor over a part of a mapping, which it keeps."""
    count = int(np.prod(tensor.shape, dtype=np.int64))
    array = np.frombuffer(mapped, tensor.dtype.as_numpy_dtype, count, first).reshape(tensor.shape)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
