"""Models that rank a list as a whole: ops along the rows become ops along one user's candidates.

The rows of a listwise model are one user's list, so every tensor […] of its graph becomes [users, …]: each op
gets one more batch axis in front and is done for each user alone. Nothing can meet across users, because no
op is ever given that axis. Its N must be a bucket: padding would be part of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from bireme.compiler.rows.lifted import Writer
from bireme.compiler.rows.listwise_ops import LIST_OPS, TOLD, Listed, ListWriter, Op, Value
from bireme.compiler.rows.row_dims import Rows
from bireme.compiler.rows.row_shapes import RowShapes
from bireme.compiler.rows.row_values import Const, Lifted
from bireme.errors import CompileError

__all__ = ["Listwise"]


class Listwise:
    """Carries ops over for each user's list.

    Args:
        writer: where nodes go.
        known: shapes of the row-wise graph.
    """

    def __init__(self, writer: Writer, known: RowShapes) -> None:
        self.writer = writer
        self.lists = ListWriter(writer)
        self.known = known
        self.values: dict[str, Listed] = {}

    def node(self, node: onnx.NodeProto, inputs: Sequence[Lifted | None], attributes: dict[str, Any]) -> bool:
        """Carry one op over; False if there is no rule for it.

        Args:
            node: the row-wise op.
            inputs: its inputs where they keep rows apart; None where they are this class's own.
            attributes: its attributes.
        """
        if all(name in self.known.sizes or name in self.known.constants for name in node.output):
            return True  # followed, not computed
        handler = LIST_OPS.get(node.op_type)
        shapes = [self.known.shapes.get(name) for name in node.output]
        if handler is None or any(shape is None for shape in shapes):
            return False
        values = [
            # What it tells of the shape is known.
            np.zeros(0, np.int64) if place and node.op_type in TOLD else self._value(name, value)
            for place, (name, value) in enumerate(zip(node.input, inputs, strict=True))
        ]
        if any(value is None for value in values):
            return False
        targets = [tuple(shape) for shape in shapes if shape is not None]
        known = [value for value in values if value is not None]
        made = handler(self.lists, Op(node.op_type, known, attributes, targets[0], len(targets)))
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

    def _count(self, name: str) -> Listed | None:
        """The number of candidates, where an op computes with it."""
        sizes = self.known.sizes.get(name)
        if sizes is None or sizes.values.size != 1:
            return None
        size = sizes.values.reshape(-1)[0]
        shape = (1,) * sizes.values.ndim
        tensor = self.writer.node("Reshape", [self.lists.size(size), self.writer.axes(1, *shape)])
        if sizes.dtype != np.int64:
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(sizes.dtype))
            tensor = self.writer.node("Cast", [tensor], to=kind)
        return Listed(tensor, shape)

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
