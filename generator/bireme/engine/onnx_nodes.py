"""The nodes of an ONNX that a builder must be told about, as far as the package `onnx` is there to read them.

A serving host need not have it: then TensorRT's own view of the network decides, and an error names a node
by its number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Nodes", "read_nodes"]

# TensorRT's parser calls a layer like its node, and the further layers of that node like it with a number.
_NUMBERED = re.compile(r"(.+)_\d+")


@dataclass(frozen=True)
class Nodes:
    """What of an ONNX matters here.

    Args:
        known: whether it could be read, types included.
        half: whether it has FP16 anywhere.
        fp32: nodes that compute in FP32 though others do in FP16.
        names: (name, op) of every node, in the file's order.
        values: what each node gives, in the same order.
    """

    known: bool = False
    half: bool = False
    fp32: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, ...], ...] = ()

    def at(self, index: int) -> tuple[str, str]:
        """Name and op of a node by its number; empty where it is not known."""
        return self.names[index] if 0 <= index < len(self.names) else ("", "")

    def is_full(self, layer: str, outputs: Sequence[str]) -> bool | None:
        """Whether one of TensorRT's layers belongs to a node that computes in FP32.

        Args:
            layer: its name.
            outputs: names of its tensors.

        Returns:
            None if no node is found for it.
        """
        if not self.known:
            return None
        all_names = {name for name, _ in self.names if name}
        full = set(self.fp32)
        numbered = _NUMBERED.fullmatch(layer)
        for name in (layer, numbered[1] if numbered else ""):
            if name in all_names:
                return name in full
        for (name, _), values in zip(self.names, self.values, strict=True):
            if name and set(values) & set(outputs):
                return name in full
        return None


def read_nodes(content: bytes) -> Nodes:
    """Read an ONNX; `Nodes()` without the package, or if it is none (the builder will say so better)."""
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

        from bireme.emitter.artifacts import computed_in_fp32
    except ImportError:
        return Nodes()
    try:
        graph = onnx.load_model_from_string(content).graph
    except DecodeError:
        return Nodes()
    names = tuple((node.name, node.op_type) for node in graph.node)
    values = tuple(tuple(node.output) for node in graph.node)
    try:
        full = computed_in_fp32(content)
    except Exception:  # shape inference raises types of its own
        return Nodes(names=names, values=values)
    return Nodes(True, full is not None, tuple(filter(None, full or ())), names, values)
