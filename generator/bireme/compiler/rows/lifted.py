"""Writes the graph that `user_once` makes: values become nodes when something needs them whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx

from bireme.compiler.rows.row_values import (
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
        self._unshaped: dict[str, Tensor] = {}
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
        return output

    def nodes_of(self, op: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Append a node with several outputs; returns their tensors."""
        outputs = [self._free(f"v{len(self.nodes)}_{index}") for index in range(count)]
        self.nodes.append(onnx.helper.make_node(op, list(inputs), outputs, self.origin, **attributes))
        return outputs

    def weight(self, value: Array) -> str:
        """Name of a weight; equal ones are stored once."""
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in self._known:
            self._known[key] = self._free(f"c{len(self.weights)}")
            self.weights.append(onnx.numpy_helper.from_array(np.asarray(value, order="C"), self._known[key]))
        return self._known[key]

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        return name

    def axes(self, *axes: int) -> str:
        """An int64 weight."""
        return self.weight(np.array(axes, dtype=np.int64))

    def input(self, side: Side) -> Tensor:
        """A whole input, as FP32 [users, 1 or candidates, width]; written on first use."""
        if side not in self._inputs:
            name = "user" if side == "user" else "items"
            if self._dtype != "float32":
                name = self.node("Cast", [name], to=onnx.TensorProto.FLOAT)
            if side == "user":
                name = self.node("Unsqueeze", [name, self.axes(1)])
            self._inputs[side] = Tensor(name, side, (self._widths[side],))
        return self._inputs[side]

    def write(self, value: Lifted) -> Tensor:
        """Make a value a tensor of the graph, in its full shape behind users and candidates."""
        tensor = self.compact(value)
        if isinstance(value, (Stretched, Sum)) and tensor.rest != value.rest:
            name = self.node("Expand", [tensor.name, self.axes(1, 1, *value.rest)])
            return Tensor(name, tensor.side, value.rest)
        return tensor

    def compact(self, value: Lifted) -> Tensor:
        """Make a value a tensor that may have length 1 in dimensions along which it repeats."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Stretched):
            return value.tensor
        if isinstance(value, Slice):
            return self._slice(value)
        if isinstance(value, Sum):
            return self._sum(value)
        if isinstance(value, Segments):
            return self._concat(value)
        raise TypeError(f"not a tensor of users and candidates: {value}")

    def reshape(self, tensor: Tensor, rest: Rest) -> Tensor:
        """The same elements in another shape."""
        tensor = self._unshaped.get(tensor.name, tensor)
        if tensor.rest == rest:
            return tensor
        shaped = Tensor(self.node("Reshape", [tensor.name, self.axes(0, 0, *rest)]), tensor.side, rest)
        self._unshaped[shaped.name] = tensor
        return shaped

    def _slice(self, value: Slice) -> Tensor:
        source, size = value.source, prod(value.rest)
        if size != prod(source.rest):
            axis = next((i for i, length in enumerate(source.rest) if length != 1), 0)
            inner = prod(source.rest[axis + 1 :])
            if value.start % inner or size % inner:
                source, axis, inner = self.reshape(source, (prod(source.rest),)), 0, 1
            start, length = value.start // inner, size // inner
            bounds = (self.axes(start), self.axes(start + length), self.axes(axis + 2))
            rest = (*source.rest[:axis], length, *source.rest[axis + 1 :])
            source = Tensor(self.node("Slice", [source.name, *bounds]), source.side, rest)
        return self.reshape(source, value.rest)

    def _sum(self, value: Sum) -> Tensor:
        total: Tensor | None = None
        # The user's own terms come first: they are added once.
        for term in sorted(value.terms, key=lambda term: (term.item is not None, term.scale < 0)):
            factor, scale = self._term(term)
            total = factor if total is None else self._added(total, factor, scale)
            if total is factor and scale < 0:
                total = Tensor(self.node("Neg", [total.name]), total.side, total.rest)
        assert total is not None
        return total

    def _term(self, term: Term) -> tuple[Tensor, float]:
        """A term, as a tensor and a sign."""
        scale = abs(term.scale)
        factors = list(term.factors)
        if scale != 1.0:
            first = factors[0]
            name = self.node("Mul", [first.name, self.weight(np.array(scale, np.float32))])
            factors[0] = Tensor(name, first.side, first.rest)
        sign = 1.0 if term.scale > 0 else -1.0
        if len(factors) == 1:
            return factors[0], sign
        name = self.node("Mul", [factor.name for factor in factors])
        return Tensor(name, "item", broadcast(*(factor.rest for factor in factors))), sign

    def _added(self, left: Tensor, right: Tensor, sign: float) -> Tensor:
        name = self.node("Add" if sign > 0 else "Sub", [left.name, right.name])
        side: Side = "item" if "item" in (left.side, right.side) else "user"
        return Tensor(name, side, broadcast(left.rest, right.rest))

    def _concat(self, value: Segments) -> Tensor:
        merged = merge(value.parts, value.axis) if value.contiguous else value.parts
        parts = [self.write(part) for part in merged]
        if len(parts) == 1:
            return parts[0]
        names = [self.expand(part).name if value.mixed else part.name for part in parts]
        return Tensor(self.node("Concat", names, axis=value.axis + 2), value.side, value.rest)

    def expand(self, part: Tensor) -> Tensor:
        """A user tensor repeated for every candidate: only where nothing cheaper will do."""
        if part.side == "item":
            return part
        shape = self.node("Shape", ["items"], start=0, end=2)
        if part.rest:
            # 0: TensorFlow's graph does not tell how long that dimension is.
            rest = self.axes(*part.rest) if 0 not in part.rest else self.node("Shape", [part.name], start=2)
            shape = self.node("Concat", [shape, rest], axis=0)
        return Tensor(self.node("Expand", [part.name, shape]), "item", part.rest)


class Context:
    """What the handlers know about the row-wise graph.

    Args:
        writer: where lifted nodes go.
        values: row-wise tensor → its lifted value, so far.
        rests: row-wise tensor → its shape behind the row dimension.
    """

    def __init__(self, writer: Writer, values: dict[str, Lifted], rests: Mapping[str, Rest]) -> None:
        self.writer = writer
        self.values = values
        #: Written product → its two factors.
        self.products: dict[str, tuple[Lifted, Lifted]] = {}
        self._rests = rests

    def knows(self, name: str) -> bool:
        """Whether the rank of a row-wise tensor is known."""
        return name in self._rests

    def rest(self, node: onnx.NodeProto) -> Rest:
        """Shape of a node's output behind the row dimension."""
        return self._rests[node.output[0]]

    def rank(self, node: onnx.NodeProto, index: int) -> int:
        """Row-wise rank of a node's input."""
        value = self.values[node.input[index]]
        return value.value.ndim if isinstance(value, Const) else 1 + len(value.rest)
