"""Named numpy arrays in one file that is mapped, not read, and that knows when it is not whole.

Layout: magic, header length and checksum; the header (JSON); then every array, little-endian, at a multiple
of 64 bytes. The same arrays give the same bytes.
"""

from __future__ import annotations

import json
import mmap
import secrets
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "read_arrays", "write_arrays"]

Arrays = dict[str, npt.NDArray[Any]]

_MAGIC = b"bireme\x01\n"
_PREFIX = struct.Struct("<8sII")  # magic, header length, CRC-32 of the header
_ALIGN = 64  # one cache line, and the widest vector register


def write_arrays(path: Path, kind: str, meta: Mapping[str, Any], arrays: Arrays) -> None:
    """Write `arrays` (bool, integer or float) to `path`, all or nothing: a reader never sees half a file.

    Args:
        path: the file, replaced if it exists; its folder must exist.
        kind: what the file is; `read_arrays` asks for it again.
        meta: JSON values to keep with the arrays.
        arrays: name → array of any shape; stored in C order.
    """
    stored = [(name, _storable(name, array)) for name, array in arrays.items()]
    offsets, end = [], 0
    for _, array in stored:
        offsets.append(end)
        end = _aligned(end + array.nbytes)
    specs = [
        {"name": name, "dtype": array.dtype.str, "shape": array.shape, "offset": offset}
        for (name, array), offset in zip(stored, offsets, strict=True)
    ]
    header = json.dumps(
        {"kind": kind, "meta": dict(meta), "arrays": specs, "size": end},
        sort_keys=True,
        separators=(",", ":"),
    ).encode()
    start = _aligned(_PREFIX.size + len(header))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(_PREFIX.pack(_MAGIC, len(header), zlib.crc32(header)) + header)
            for (_, array), offset in zip(stored, offsets, strict=True):
                file.write(bytes(start + offset - file.tell()))
                file.write(array.data if array.size else b"")
            file.write(bytes(start + end - file.tell()))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_arrays(path: Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Map what `write_arrays` wrote: its `meta`, and read-only arrays whose pages are loaded when touched.

    Raises:
        ValueError: the file is missing, is not of this `kind`, or is not whole; names it and the remedy.
    """
    try:
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    except FileNotFoundError:
        raise _refusal(path, "is missing") from None
    header = _header(path, raw)
    if header["kind"] != kind:
        raise _refusal(path, f"holds {header['kind']!r}, not {kind!r}")
    start = _aligned(_PREFIX.size + _PREFIX.unpack_from(raw)[1])
    if len(raw) != start + header["size"]:
        raise _refusal(path, f"has {len(raw)} bytes instead of {start + header['size']}")
    arrays: Arrays = {
        spec["name"]: np.ndarray(spec["shape"], spec["dtype"], raw, start + spec["offset"])
        for spec in header["arrays"]
    }
    return header["meta"], arrays


def _header(path: Path, raw: Any) -> dict[str, Any]:
    if len(raw) < _PREFIX.size:
        raise _refusal(path, f"has only {len(raw)} bytes")
    magic, length, checksum = _PREFIX.unpack_from(raw)
    if magic != _MAGIC:
        raise _refusal(path, "is not a file of this runtime")
    text = raw[_PREFIX.size : _PREFIX.size + length]
    if zlib.crc32(text) != checksum:
        raise _refusal(path, "has a damaged header")
    header: dict[str, Any] = json.loads(text)
    return header


def _storable(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise TypeError(f"array '{name}' is {array.dtype}; only bool, integers and floats can be stored")
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _refusal(path: Path, fault: str) -> ValueError:
    return ValueError(f"{path}: {fault}; rebuild the repository with `bireme build`")
