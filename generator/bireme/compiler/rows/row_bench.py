"""What `rows_first` writes with: nodes on bases, and what is known about their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime

from bireme.compiler.rows.row_dims import Dim, Rows, Sizes
from bireme.compiler.rows.row_view import NoViewError, View

__all__ = ["Array", "Bench", "attributes_of"]

Array = np.ndarray[Any, Any]
_OPSET = 17
#: A computed constant that is larger stays computed.
_LARGEST = 1 << 24


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes by name."""
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


@dataclass
class _Fact:
    """Element type and shape of a tensor; a size that is not known is None."""

    element: int
    shape: list[Dim | None] | None


class Bench:
    """Nodes and constants of the graph in the making, and what is known about its tensors.

    Args:
        anchor: an input [rows, …] that tells how many rows there are.
    """

    def __init__(self, anchor: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.sizes: dict[str, Sizes] = {}
        self.views: dict[str, View] = {}
        #: positions that are the same in every row: `row_picks.Picks`
        self.picks: dict[str, Any] = {}
        self.origin = ""
        self._anchor = anchor
        self._facts: dict[str, _Fact] = {}
        self._root: dict[str, str] = {}
        self._known: dict[tuple[Any, ...], str] = {}
        self._count = 0

    def fresh(self) -> str:
        """An unused name; no tensor of tf2onnx is called like that after `canonicalise`."""
        self._count += 1
        return f"rows_first.{self._count}"

    def constant(self, value: Array) -> str:
        """Name of a constant; equal ones are stored once."""
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._known:
            self._known[key] = self.fresh()
            self.constants[self._known[key]] = value
        return self._known[key]

    def numbers(self, *values: int) -> str:
        """An int64 constant."""
        return self.constant(np.array(values, dtype=np.int64))

    def know(self, name: str, element: int, shape: list[Dim | None] | None) -> None:
        """Element type and shape of a tensor."""
        self._facts[name] = _Fact(element, shape)

    def element(self, name: str) -> int:
        """Element type of a tensor."""
        return self._facts[name].element

    def shape(self, name: str) -> list[Dim] | None:
        """Row-wise shape of a tensor, if all of it is known."""
        if name in self.constants:
            return list(self.constants[name].shape)
        if name in self.views:
            return self.views[name].shape
        fact = self._facts.get(name)
        known = fact.shape if fact is not None else None
        return (
            [size for size in known if size is not None] if known is not None and None not in known else None
        )

    def rest(self, base: str) -> tuple[int, ...]:
        """Shape of a base behind its rows.

        Raises:
            NoViewError: it is not known.
        """
        shape = self.constants[base].shape if base in self.constants else self._facts[base].shape
        if shape is None or not all(isinstance(size, int) for size in shape[1:]):
            raise NoViewError
        return tuple(int(size) for size in shape[1:] if isinstance(size, int))

    def emit(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Write a node on bases; returns its base. One on constants alone is computed instead."""
        return self.emit_all(op, inputs, 1, **attributes)[0]

    def emit_all(self, op: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Write a node with several outputs."""
        node = onnx.helper.make_node(
            op, list(inputs), [self.fresh() for _ in range(count)], name=self.origin, **attributes
        )
        values = self.compute(node)
        if values is not None:
            return [self.constant(value) for value in values]
        if all(name in self.constants for name in inputs if name):
            raise NoViewError  # its one row would pass for all of them
        self.append(node)
        for output in node.output:
            fact = self._facts[output]
            if not fact.shape:
                raise NoViewError
            fact.shape[0] = Rows()
        return list(node.output)

    def append(self, node: onnx.NodeProto) -> None:
        """Add a node and infer its outputs."""
        self.nodes.append(node)
        self._infer(node)

    def reform(self, base: str, rest: Sequence[int]) -> str:
        """A base with its row's numbers in another shape; reshapes of reshapes are one."""
        source = self._root.get(base, base)
        if self.rest(source) == tuple(rest):
            return source
        if 0 in rest:
            raise NoViewError
        made = self._reform(source, self.rest(source), tuple(rest))
        self._root[made] = source
        return made

    def _reform(self, base: str, old: tuple[int, ...], new: tuple[int, ...]) -> str:
        wider, narrower = (new, old) if len(new) > len(old) else (old, new)
        ones, position = [], 0
        for axis, size in enumerate(wider, start=1):
            if position < len(narrower) and narrower[position] == size:
                position += 1
            elif size == 1:
                ones.append(axis)
            else:
                return self.emit("Reshape", [base, self.numbers(-1, *new)])
        if position != len(narrower) or not ones:
            return self.emit("Reshape", [base, self.numbers(-1, *new)])
        return self.emit("Unsqueeze" if len(new) > len(old) else "Squeeze", [base, self.numbers(*ones)])

    def row_by_row(self, base: str) -> str:
        """A base that has a value of its own for every row, where its size counts.

        `c` becomes `where(a < a, c, c)`, a truth `a < a or c`, `a` [rows, 1, …]: nothing is below itself.
        """
        if base not in self.constants:
            return base
        column = self._anchor
        for axis in range(len(self.rest(column))):
            column = self.emit(
                "Slice", [column, self.numbers(0), self.numbers(1), self.numbers(axis + 1), self.numbers(1)]
            )
        column = self.reform(column, (1,) * len(self.rest(base)))
        never = self.emit("Less", [column, column])
        if self.constants[base].dtype == bool:
            return self.emit("Or", [never, base])
        return self.emit("Where", [never, base, base])

    def compute(self, node: onnx.NodeProto) -> list[Array] | None:
        """The outputs of a node whose inputs are all constants."""
        named = [name for name in node.input if name]
        if not named or not all(name in self.constants for name in named):
            return None
        feeds = {name: self.constants[name] for name in named}
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)
            )
            for name, value in feeds.items()
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
        model = _model(onnx.helper.make_graph([node], "constant", inputs, outputs))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            values = [np.asarray(value) for value in session.run(None, feeds)]
        except Exception:  # an op or type that it cannot compute stays in the graph
            return None
        return values if sum(value.size for value in values) <= _LARGEST else None

    def _infer(self, node: onnx.NodeProto) -> None:
        inputs, weights = [], []
        for name in dict.fromkeys(name for name in node.input if name):
            if name in self.constants:
                value = self.constants[name]
                if value.size <= 64:
                    weights.append(onnx.numpy_helper.from_array(value, name))
                element = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
                shape: list[int | str | None] | None = list(value.shape)
            elif name in self._facts:
                fact = self._facts[name]
                element, shape = fact.element, None if fact.shape is None else [_dim(d) for d in fact.shape]
            else:
                continue
            inputs.append(onnx.helper.make_tensor_value_info(name, element, shape))
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "one", inputs, outputs, weights)
        try:
            inferred = onnx.shape_inference.infer_shapes(_model(graph), strict_mode=True, data_prop=True)
            found = {value.name: value.type.tensor_type for value in inferred.graph.output}
        except onnx.shape_inference.InferenceError:
            found = {}
        for name in node.output:
            kind = found.get(name)
            if kind is None or not kind.elem_type:
                self._facts[name] = _Fact(onnx.TensorProto.FLOAT, None)
            elif kind.HasField("shape"):
                self._facts[name] = _Fact(kind.elem_type, [_size(dim) for dim in kind.shape.dim])
            else:
                self._facts[name] = _Fact(kind.elem_type, None)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)], ir_version=8)


def _dim(size: Dim | None) -> int | str | None:
    if isinstance(size, Rows):
        return "rows" if size.times == 1 else f"rows*{size.times}"
    return size


def _size(dim: Any) -> Dim | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    if dim.dim_param == "rows":
        return Rows()
    return Rows(int(dim.dim_param[5:])) if dim.dim_param.startswith("rows*") else None
