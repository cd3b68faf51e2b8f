"""The values and the node writer that `user_once` works with.

A row-wise tensor [rows, *rest] becomes [users, candidates, *rest]; one that depends on user features alone is
[users, 1, *rest] and broadcasts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from bireme_runtime.plan import Side

__all__ = [
    "Array",
    "Attributes",
    "Const",
    "Context",
    "Lifted",
    "Segments",
    "Slice",
    "Tensor",
    "TwoSided",
    "Writer",
]

Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]


@dataclass(frozen=True)
class Const:
    """A weight."""

    value: Array


@dataclass(frozen=True)
class Tensor:
    """A written tensor."""

    name: str
    side: Side
    rest: tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """Columns of one of the two inputs, not written yet: neighbours may merge."""

    side: Side
    offset: int
    width: int

    @property
    def rest(self) -> tuple[int, ...]:
        """One dimension of columns."""
        return (self.width,)


@dataclass(frozen=True)
class Segments:
    """A concat along the last dimension that is never written if a MatMul can take it apart."""

    parts: tuple[Tensor | Slice, ...]

    @property
    def rest(self) -> tuple[int, ...]:
        """Shape of the concat behind users and candidates."""
        return (*self.parts[0].rest[:-1], sum(part.rest[-1] for part in self.parts))

    @property
    def mixed(self) -> bool:
        """Whether it holds columns of both sides."""
        return len({part.side for part in self.parts}) == 2


@dataclass(frozen=True)
class TwoSided:
    """`user + item`, not added yet: what is added to it later goes to the cheaper side."""

    user: Tensor
    item: Tensor

    @property
    def rest(self) -> tuple[int, ...]:
        """Shape behind users and candidates."""
        return self.item.rest


Lifted = Const | Tensor | Slice | Segments | TwoSided


class Writer:
    """Collects the nodes and weights of the new graph.

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
        self.widths: dict[Side, int] = {"user": user_width, "item": item_width}
        self._dtype = dtype
        self._taken = {"user", "items", *taken}
        self._inputs: dict[Side, Tensor] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def node(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """Append a node with one output; returns its tensor."""
        output = name or self._free(f"v{len(self.nodes)}")
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [output], self.origin, **attributes))
        return output

    def weight(self, value: Array) -> str:
        """Name of a weight; equal ones are stored once."""
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in self._known:
            self._known[key] = self._free(f"c{len(self.weights)}")
            self.weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), self._known[key]))
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
            self._inputs[side] = Tensor(name, side, (self.widths[side],))
        return self._inputs[side]

    def write(self, value: Lifted) -> Tensor:
        """Make a value a tensor of the graph."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Slice):
            whole = self.input(value.side)
            if value.width == self.widths[value.side]:
                return whole
            bounds = (self.axes(value.offset), self.axes(value.offset + value.width), self.axes(-1))
            return Tensor(self.node("Slice", [whole.name, *bounds]), value.side, value.rest)
        if isinstance(value, TwoSided):
            return Tensor(self.node("Add", [value.user.name, value.item.name]), "item", value.rest)
        if isinstance(value, Segments):
            return self._concat(value)
        raise TypeError(f"a weight is not a tensor: {value}")

    def _concat(self, value: Segments) -> Tensor:
        parts = [self.write(part) for part in merge(value.parts)]
        if len(parts) == 1:
            return parts[0]
        names = [self.expand(part).name if value.mixed else part.name for part in parts]
        side: Side = "item" if value.mixed else parts[0].side
        return Tensor(self.node("Concat", names, axis=-1), side, value.rest)

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

    def __init__(
        self, writer: Writer, values: dict[str, Lifted], rests: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.writer = writer
        self.values = values
        self._rests = rests

    def rest(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """Shape of a node's output behind the row dimension."""
        return self._rests[node.output[0]]

    def rank(self, node: onnx.NodeProto, index: int) -> int:
        """Row-wise rank of a node's input."""
        value = self.values[node.input[index]]
        return value.value.ndim if isinstance(value, Const) else 1 + len(value.rest)


def merge(parts: Sequence[Tensor | Slice]) -> list[Tensor | Slice]:
    """Adjacent column ranges of one input become one."""
    result: list[Tensor | Slice] = []
    for part in parts:
        last = result[-1] if result else None
        if (
            isinstance(part, Slice)
            and isinstance(last, Slice)
            and last.side == part.side
            and last.offset + last.width == part.offset
        ):
            result[-1] = Slice(part.side, last.offset, last.width + part.width)
        else:
            result.append(part)
    return result
