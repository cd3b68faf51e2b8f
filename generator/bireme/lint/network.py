"""What lies beside a config: the inputs of model.onnx, the profile of passport.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bireme_runtime.passport import ONNX, PASSPORT

__all__ = ["newest", "profile_max", "read_network"]

#: ONNX's data types (its numbers do not change) → Triton's.
_TYPES = {
    1: "TYPE_FP32",
    2: "TYPE_UINT8",
    3: "TYPE_INT8",
    4: "TYPE_UINT16",
    5: "TYPE_INT16",
    6: "TYPE_INT32",
    7: "TYPE_INT64",
    8: "TYPE_STRING",
    9: "TYPE_BOOL",
    10: "TYPE_FP16",
    11: "TYPE_FP64",
    12: "TYPE_UINT32",
    13: "TYPE_UINT64",
    16: "TYPE_BF16",
}


def newest(folder: Path) -> Path:
    """The version folder that is served."""
    versions = sorted((int(path.name), path) for path in folder.iterdir() if path.name.isdecimal())
    return versions[-1][1] if versions else folder


def profile_max(version: Path) -> Mapping[str, Sequence[int]]:
    """Input → largest shape, of passport.json; a damaged one is refused by `bireme serve`."""
    try:
        profile = json.loads((version / PASSPORT).read_text(encoding="utf-8"))["profile"]
        return {str(name): [int(size) for size in shapes["max"]] for name, shapes in profile.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def read_network(version: Path) -> tuple[Mapping[str, Sequence[int | None]], Mapping[str, str]]:
    """Input → sizes and input → type, of model.onnx; nothing without one, or without the package `onnx`."""
    path = version / ONNX
    if not path.is_file():
        return {}, {}
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        return {}, {}
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except (OSError, DecodeError):
        return {}, {}  # whoever builds the engine, or starts the server, says so
    constants = {tensor.name for tensor in graph.initializer}
    tensors = {value.name: value.type.tensor_type for value in graph.input if value.name not in constants}
    shapes = {
        name: [size.dim_value if size.HasField("dim_value") else None for size in tensor.shape.dim]
        for name, tensor in tensors.items()
    }
    types = {name: _TYPES.get(tensor.elem_type, "") for name, tensor in tensors.items()}
    return shapes, types
