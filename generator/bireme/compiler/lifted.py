"""Writes the graph that `user_once` makes: values become nodes when something needs them whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx

from bireme.compiler.row_values import (
    Array,
    Const,
    Lifted,
    Rest,
    Segments,
    Slice,
    Stretched,
    Sum,
    Tensor,
    Term,
    broadcast,
    merge,
)
from bireme_runtime.plan import Side

__all__ = ["Array", "Attributes", "Const", "Context", "Lifted", "Tensor", "Writer"]

Attributes = dict[str, Any]


class Writer:
    """Collects the nodes and weights of the new graph; equal nodes are written once.

    Args:
        user_width: columns of `user` [users, user_width].
        item_width: columns of `items` [users, candidates, item_width].
        dtype: numpy name of both inputs' dtype; computation is FP32.
        taken: names that are not free for tensors: those of the outputs.

    Set `origin` to the row-wise node that is being carried over: what is written then remembers its name.
    """

    def __init__(self, user_width: int, item_width: int, dtype: str, taken: Collection[str]) -> None:
        self.origin = ""
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._widths: dict[Side, int] = {"user": user_width, "item": item_width}
        self._dtype = dtype
        self._taken = {"user", "items", *taken}
        self._inputs: dict[Side, Tensor] = {}
        self._known: dict[tuple[str, Rest, bytes], str] = {}
        self._written: dict[tuple[str, tuple[str, ...], str], str] = {}

    def node(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """A node with one output; returns its tensor. An equal node that is there already is used again."""
        key = (op, tuple(inputs), repr(sorted(attributes.items())))
        if not name and key in self._written:
            return self._written[key]
        output = name or self._free(f"v{len(self.nodes)}")
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [output], self.origin, **attributes))
        if not name:
            self._written[key] = output
