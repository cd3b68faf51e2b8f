"""Ops on tensors that have one more axis in front, the users: see `listwise`.

Each function returns the names of its outputs, or None where it has no rule for this use of the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bireme.compiler.rows.lifted import Writer
from bireme.compiler.rows.row_dims import Dim, Rows
from bireme.compiler.rows.row_elementwise import ELEMENTWISE
from bireme.compiler.rows.row_reduce import REDUCTIONS
from bireme.compiler.rows.row_values import Array

__all__ = ["LIST_OPS", "TOLD", "ListWriter", "Listed", "Op", "Value"]

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
class Op:
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


class ListWriter:
    """Writes nodes with the users in front.

    Args:
        writer: where nodes go.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

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


def _elementwise(lift: ListWriter, op: Op) -> list[str] | None:
    rank = len(op.shape)
    first = op.inputs[0]
    if op.kind == "Identity" and isinstance(first, Listed):
        return [first.name]
    if op.kind == "PRelu" and not (isinstance(first, Listed) and first.rank == rank):
        return None  # a slope must not be wider than what it meets
    names = [lift.wide(v, rank) if isinstance(v, Listed) else lift.writer.weight(v) for v in op.inputs]
    return [lift.writer.node(op.kind, names, **op.attributes)]


def _matmul(lift: ListWriter, op: Op) -> list[str] | None:
    ranks = [value.rank if isinstance(value, Listed) else value.ndim for value in op.inputs]
    if min(ranks) < 2:
        return None
    names = [lift.wide(v, max(ranks)) if isinstance(v, Listed) else lift.writer.weight(v) for v in op.inputs]
    return [lift.writer.node("MatMul", names)]


def _gemm(lift: ListWriter, op: Op) -> list[str] | None:
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
TOLD = {"Reshape", "Expand", "Squeeze", "Unsqueeze"}
#: Ops along one axis → the axis that they take if none is given.
_ALONG = {
    "Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "ArgMax": 0, "ArgMin": 0, "TopK": -1, "Split": 0,
    "LayerNormalization": -1,
}  # fmt: skip


def _along(lift: ListWriter, op: Op) -> list[str] | None:
    first = op.inputs[0]
    if not isinstance(first, Listed) or any(isinstance(value, Listed) for value in op.inputs[1:]):
        return None
    axis = op.attributes.get("axis", _ALONG[op.kind]) % first.rank + 1
    names = [first.name, *(lift.writer.weight(v) for v in op.inputs[1:] if not isinstance(v, Listed))]
    attributes = {**op.attributes, "axis": axis}
    if op.outputs == 1:
        return [lift.writer.node(op.kind, names, **attributes)]
    return lift.writer.nodes_of(op.kind, names, op.outputs, **attributes)


def _cumsum(lift: ListWriter, op: Op) -> list[str] | None:
    value, axis = op.inputs
    if not isinstance(value, Listed) or isinstance(axis, Listed):
        return None
    place = lift.writer.weight(np.array(int(axis.reshape(-1)[0]) % value.rank + 1, np.int64))
    return [lift.writer.node("CumSum", [value.name, place], **op.attributes)]


def _reduce(lift: ListWriter, op: Op) -> list[str] | None:
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


def _average(lift: ListWriter, op: Op) -> list[str] | None:
    value = op.inputs[0]
    if not isinstance(value, Listed):
        return None
    kind = "ReduceMean" if op.kind == "GlobalAveragePool" else "ReduceMax"
    return [lift.writer.node(kind, [value.name], axes=list(range(3, 1 + value.rank)), keepdims=1)]


def _reshape(lift: ListWriter, op: Op) -> list[str] | None:
    """Also Squeeze, Unsqueeze and Flatten: the same numbers in another shape."""
    value, target = op.inputs[0], op.shape
    if not isinstance(value, Listed) or 0 in target:
        return None
    if sum(isinstance(size, Rows) for size in target) <= 1:
        sizes = [-1 if isinstance(size, Rows) else size for size in target]
        return [lift.writer.node("Reshape", [value.name, lift.writer.axes(0, *sizes)])]
    return [lift.writer.node("Reshape", [value.name, lift.shape(target, 0)])]


def _transpose(lift: ListWriter, op: Op) -> list[str] | None:
    value = op.inputs[0]
    if not isinstance(value, Listed):
        return None
    order = op.attributes.get("perm", range(value.rank)[::-1])
    return [lift.writer.node("Transpose", [value.name], perm=[0, *(axis + 1 for axis in order)])]


def _concat(lift: ListWriter, op: Op) -> list[str] | None:
    axis = op.attributes["axis"] % len(op.shape) + 1
    users = lift.writer.node("Shape", ["items"], start=0, end=1)
    names = []
    for value in op.inputs:
        name = value.name if isinstance(value, Listed) else lift.writer.weight(value[None])
        ones = lift.writer.node("Concat", [users, lift.writer.axes(*(1 for _ in value.shape))], axis=0)
        # Expanded, because a tensor may be the same for all users.
        names.append(lift.writer.node("Expand", [name, ones]))
    return [lift.writer.node("Concat", names, axis=axis)]


def _slice(lift: ListWriter, op: Op) -> list[str] | None:
    value, bounds = op.inputs[0], op.inputs[1:]
    if not isinstance(value, Listed) or any(isinstance(bound, Listed) for bound in bounds):
        return None
    columns = [bound.reshape(-1).tolist() for bound in bounds if not isinstance(bound, Listed)]
    axes = columns[2] if len(columns) > 2 else list(range(len(columns[0])))
    columns[2:3] = [[axis % value.rank + 1 for axis in axes]]
    return [lift.writer.node("Slice", [value.name, *(lift.writer.axes(*column) for column in columns)])]


def _gather(lift: ListWriter, op: Op) -> list[str] | None:
    data, indices = op.inputs
    if not isinstance(data, Listed) or isinstance(indices, Listed):
        return None
    axis = op.attributes.get("axis", 0) % data.rank + 1
    return [lift.writer.node("Gather", [data.name, lift.writer.weight(indices)], axis=axis)]


def _expand(lift: ListWriter, op: Op) -> list[str] | None:
    value, target = op.inputs[0], op.shape
    if isinstance(value, Listed):
        return [lift.writer.node("Expand", [lift.wide(value, len(target)), lift.shape(target, 1)])]
    return [lift.writer.node("Expand", [lift.writer.weight(value), lift.shape(target, 1)])]


LIST_OPS: dict[str, Callable[[ListWriter, Op], list[str] | None]] = {
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
