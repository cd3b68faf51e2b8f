"""Models that rank a list as a whole: ops along the rows become ops along one user's candidates.

The rows of a listwise model are one user's list, so every tensor […] of its graph becomes [users, …]: each op
gets one more batch axis in front and is done for each user alone. Nothing can meet across users, because no
op is ever given that axis. Its N must be a bucket: padding would be part of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from bireme.compiler.lifted import Writer
from bireme.compiler.row_dims import Dim, Rows
from bireme.compiler.row_elementwise import ELEMENTWISE
from bireme.compiler.row_reduce import REDUCTIONS
from bireme.compiler.row_shapes import RowShapes
from bireme.compiler.row_values import Array, Const, Lifted
from bireme.errors import CompileError

__all__ = ["Listed", "Listwise"]

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Listed:
    """A tensor of the new graph, [users, *shape]; 1 in front where it is the same for all users.

    Args:
        name: the tensor.
        shape: its row-wise shape; the number of rows is that of candidates.
    """

    name: str
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """Row-wise rank."""
        return len(self.shape)


Value = Listed | Array


@dataclass(frozen=True)
class _Op:
    """One op to carry over.

    Args:
        kind: its type.
        inputs: what it reads.
        attributes: by name.
        shape: row-wise shape of its first output.
        outputs: how many outputs it has.
    """

    kind: str
    inputs: list[Value]
    attributes: Attributes
    shape: tuple[Dim, ...]
    outputs: int


_Handler = Callable[["Listwise", _Op], "list[str] | None"]


class Listwise:
    """Carries ops over for each user's list.

    Args:
        writer: where nodes go.
        known: shapes of the row-wise graph.
    """

    def __init__(self, writer: Writer, known: RowShapes) -> None:
        self.writer = writer
        self.known = known
        self.values: dict[str, Listed] = {}

    def node(self, node: onnx.NodeProto, inputs: Sequence[Lifted | None], attributes: Attributes) -> bool:
        """Carry one op over; False if there is no rule for it.

        Args:
            node: the row-wise op.
            inputs: its inputs where they keep rows apart; None where they are this class's own.
            attributes: its attributes.
        """
        if all(name in self.known.sizes or name in self.known.constants for name in node.output):
            return True  # followed, not computed
        handler = _HANDLERS.get(node.op_type)
        shapes = [self.known.shapes.get(name) for name in node.output]
        if handler is None or any(shape is None for shape in shapes):
            return False
        values = [
            # What it tells of the shape is known.
            np.zeros(0, np.int64) if place and node.op_type in _TOLD else self._value(name, value)
            for place, (name, value) in enumerate(zip(node.input, inputs, strict=True))
        ]
        if any(value is None for value in values):
            return False
        targets = [tuple(shape) for shape in shapes if shape is not None]
        known = [value for value in values if value is not None]
        made = handler(self, _Op(node.op_type, known, attributes, targets[0], len(targets)))
        if made is None:
            return False
        for name, tensor, shape in zip(node.output, made, targets, strict=True):
            self.values[name] = Listed(tensor, shape)
        return True

    def _value(self, name: str, value: Lifted | None) -> Value | None:
        if name in self.known.constants:
            return self.known.constants[name]
        if value is None:
            return self.values.get(name) or self._count(name)
        if isinstance(value, Const):
            return value.value
        tensor = self.writer.expand(self.writer.write(value))
        return Listed(tensor.name, (Rows(), *tensor.rest))

    def _count(self, name: str) -> Listed | Array | None:
        """The number of candidates, where an op computes with it."""
        sizes = self.known.sizes.get(name)
        if sizes is None or sizes.values.size != 1:
            return None
        size = sizes.values.reshape(-1)[0]
        shape = (1,) * sizes.values.ndim
        tensor = self.writer.node("Reshape", [self.size(size), self.writer.axes(1, *shape)])
        if sizes.dtype != np.int64:
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(sizes.dtype))
            tensor = self.writer.node("Cast", [tensor], to=kind)
        return Listed(tensor, shape)

    def size(self, size: Dim) -> str:
        """A size as a tensor [1]."""
        if not isinstance(size, Rows):
            return self.writer.axes(size)
        candidates = self.writer.node("Shape", ["items"], start=1, end=2)
        return (
            candidates
            if size.times == 1
            else self.writer.node("Mul", [candidates, self.writer.axes(size.times)])
        )

    def shape(self, shape: Sequence[Dim], first: int) -> str:
        """[first, *shape] as a tensor."""
        if not any(isinstance(size, Rows) for size in shape):
            return self.writer.axes(first, *(size for size in shape if isinstance(size, int)))
        return self.writer.node(
            "Concat", [self.writer.axes(first), *(self.size(size) for size in shape)], axis=0
        )

    def wide(self, value: Listed, rank: int) -> str:
        """With ones behind the users, up to a rank."""
        if value.rank >= rank:
            return value.name
        return self.writer.node("Unsqueeze", [value.name, self.writer.axes(*range(1, 1 + rank - value.rank))])

    def output(self, task: str) -> None:
        """Write a task as FP32 [users, candidates].

        Raises:
            CompileError: it is not one number a candidate.
        """
        value = self.values[task]
        if value.shape not in ((Rows(),), (Rows(), 1)):
            raise CompileError(
                f"output '{task}'",
                "is not one number for each candidate of the list",
                "serve another output, or reshape it to [rows] or [rows, 1]",
            )
        name = value.name
        if value.rank == 2:
            name = self.writer.node("Squeeze", [name, self.writer.axes(2)])
        self.writer.node("Identity", [name], name=task)


def _elementwise(lift: Listwise, op: _Op) -> list[str] | None:
    rank = len(op.shape)
    if op.kind == "Identity" and isinstance(op.inputs[0], Listed):
        return [op.inputs[0].name]
    names = [lift.wide(v, rank) if isinstance(v, Listed) else lift.writer.weight(v) for v in op.inputs]
    return [lift.writer.node(op.kind, names, **op.attributes)]


def _matmul(lift: Listwise, op: _Op) -> list[str] | None:
    ranks = [value.rank if isinstance(value, Listed) else value.ndim for value in op.inputs]
    if min(ranks) < 2:
        return None
    names = [lift.wide(v, max(ranks)) if isinstance(v, Listed) else lift.writer.weight(v) for v in op.inputs]
    return [lift.writer.node("MatMul", names)]


def _gemm(lift: Listwise, op: _Op) -> list[str] | None:
    names = []
    for value, key in zip(op.inputs[:2], ("transA", "transB"), strict=True):
        turned = bool(op.attributes.get(key, 0))
        if isinstance(value, Listed):
            names.append(
                lift.writer.node("Transpose", [value.name], perm=[0, 2, 1]) if turned else value.name
            )
        else:
            names.append(lift.writer.weight(np.ascontiguousarray(value.T) if turned else value))
    made = lift.writer.node("MatMul", names)
    for factor, other in (
        (op.attributes.get("alpha", 1.0), None),
        (op.attributes.get("beta", 1.0), op.inputs[2:]),
    ):
        if other is None:
            if factor != 1.0:
                made = lift.writer.node("Mul", [made, lift.writer.weight(np.array(factor, np.float32))])
        elif other:
            bias = other[0]
            name = lift.wide(bias, 2) if isinstance(bias, Listed) else lift.writer.weight(bias)
            if factor != 1.0:
                name = lift.writer.node("Mul", [name, lift.writer.weight(np.array(factor, np.float32))])
            made = lift.writer.node("Add", [made, name])
    return [made]


#: Ops whose further op.inputs say no more than the shape of their output.
_TOLD = {"Reshape", "Expand", "Squeeze", "Unsqueeze"}
#: Ops along one axis → the axis that they take if none is given.
_ALONG = {
    "Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "ArgMax": 0, "ArgMin": 0, "TopK": -1, "Split": 0,
    "LayerNormalization": -1,
}  # fmt: skip


def _along(lift: Listwise, op: _Op) -> list[str] | None:
    first = op.inputs[0]
    if not isinstance(first, Listed) or any(isinstance(value, Listed) for value in op.inputs[1:]):
        return None
    axis = op.attributes.get("axis", _ALONG[op.kind]) % first.rank + 1
    names = [first.name, *(lift.writer.weight(v) for v in op.inputs[1:] if not isinstance(v, Listed))]
    attributes = {**op.attributes, "axis": axis}
    if op.outputs == 1:
        return [lift.writer.node(op.kind, names, **attributes)]
    return lift.writer.nodes_of(op.kind, names, op.outputs, **attributes)


def _cumsum(lift: Listwise, op: _Op) -> list[str] | None:
    value, axis = op.inputs
    if not isinstance(value, Listed) or isinstance(axis, Listed):
        return None
    place = lift.writer.weight(np.array(int(axis.reshape(-1)[0]) % value.rank + 1, np.int64))
    return [lift.writer.node("CumSum", [value.name, place], **op.attributes)]


def _reduce(lift: Listwise, op: _Op) -> list[str] | None:
    value = op.inputs[0]
    given = op.attributes.get("axes")
    if len(op.inputs) > 1 and not isinstance(op.inputs[1], Listed):
        given = op.inputs[1].reshape(-1).tolist()
    if not isinstance(value, Listed):
        return None
    axes = sorted(axis % value.rank + 1 for axis in (given or range(value.rank)))
    keep = op.attributes.get("keepdims", 1)
    if op.kind == "ReduceSum":
        return [lift.writer.node("ReduceSum", [value.name, lift.writer.axes(*axes)], keepdims=keep)]
    return [lift.writer.node(op.kind, [value.name], axes=axes, keepdims=keep)]


def _average(lift: Listwise, op: _Op) -> list[str] | None:
    value = op.inputs[0]
    if not isinstance(value, Listed):
        return None
    kind = "ReduceMean" if op.kind == "GlobalAveragePool" else "ReduceMax"
    return [lift.writer.node(kind, [value.name], axes=list(range(3, 1 + value.rank)), keepdims=1)]


def _reshape(lift: Listwise, op: _Op) -> list[str] | None:
    """Also Squeeze, Unsqueeze and Flatten: the same numbers in another shape."""
    value, target = op.inputs[0], op.shape
    if not isinstance(value, Listed) or 0 in target:
        return None
    if sum(isinstance(size, Rows) for size in target) <= 1:
        sizes = [-1 if isinstance(size, Rows) else size for size in target]
        return [lift.writer.node("Reshape", [value.name, lift.writer.axes(0, *sizes)])]
    return [lift.writer.node("Reshape", [value.name, lift.shape(target, 0)])]


def _transpose(lift: Listwise, op: _Op) -> list[str] | None:
    value = op.inputs[0]
    if not isinstance(value, Listed):
        return None
    order = op.attributes.get("perm", range(value.rank)[::-1])
    return [lift.writer.node("Transpose", [value.name], perm=[0, *(axis + 1 for axis in order)])]


def _concat(lift: Listwise, op: _Op) -> list[str] | None:
    axis = op.attributes["axis"] % len(op.shape) + 1
    users = lift.writer.node("Shape", ["items"], start=0, end=1)
    names = []
    for value in op.inputs:
        name = value.name if isinstance(value, Listed) else lift.writer.weight(value[None])
        ones = lift.writer.node("Concat", [users, lift.writer.axes(*(1 for _ in value.shape))], axis=0)
        # Expanded, because a tensor may be the same for all users.
        names.append(lift.writer.node("Expand", [name, ones]))
    return [lift.writer.node("Concat", names, axis=axis)]


def _slice(lift: Listwise, op: _Op) -> list[str] | None:
    value, bounds = op.inputs[0], op.inputs[1:]
    if not isinstance(value, Listed) or any(isinstance(bound, Listed) for bound in bounds):
        return None
    columns = [bound.reshape(-1).tolist() for bound in bounds if not isinstance(bound, Listed)]
    axes = columns[2] if len(columns) > 2 else list(range(len(columns[0])))
    columns[2:3] = [[axis % value.rank + 1 for axis in axes]]
    return [lift.writer.node("Slice", [value.name, *(lift.writer.axes(*column) for column in columns)])]


def _gather(lift: Listwise, op: _Op) -> list[str] | None:
    data, indices = op.inputs
    if not isinstance(data, Listed) or isinstance(indices, Listed):
        return None
    axis = op.attributes.get("axis", 0) % data.rank + 1
    return [lift.writer.node("Gather", [data.name, lift.writer.weight(indices)], axis=axis)]


def _expand(lift: Listwise, op: _Op) -> list[str] | None:
    value, target = op.inputs[0], op.shape
    if isinstance(value, Listed):
        return [lift.writer.node("Expand", [lift.wide(value, len(target)), lift.shape(target, 1)])]
    return [lift.writer.node("Expand", [lift.writer.weight(value), lift.shape(target, 1)])]


_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys((*ELEMENTWISE, "Xor", "IsNaN", "IsInf", "HardSwish"), _elementwise),
    **dict.fromkeys((*REDUCTIONS, "ReduceL1", "ReduceLogSum", "ReduceLogSumExp"), _reduce),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _average),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), _reshape),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "CumSum": _cumsum,
    "Transpose": _transpose,
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "Expand": _expand,
}
