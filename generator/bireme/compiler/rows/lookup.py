"""What a lifted network consists of, asked for by tensor: makers, readers, constants, sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["Lookup"]

Array = np.ndarray[Any, Any]
#: What a constant may differ by from 1 / width.
_RELATIVE = 1e-6


class Lookup:
    """A network in FP32, all names unique; it is not changed."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._makers = {name: node for node in model.graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)
        self._weights = {weight.name: weight for weight in model.graph.initializer}
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self._shapes = {
            value.name: value.type.tensor_type.shape.dim for value in (*inferred.value_info, *inferred.input)
        }
        self._sums: dict[str, dict[str, float]] = {}

    def maker(self, name: str, op: str) -> onnx.NodeProto | None:
        """The node that makes a tensor, if it is of this op."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type == op else None

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """Nodes that read a tensor."""
        return self._readers.get(name, [])

    def other(self, node: onnx.NodeProto, name: str) -> str | None:
        """The second operand beside `name`."""
        rest = [operand for operand in node.input if operand != name]
        return rest[0] if len(node.input) == 2 and len(rest) == 1 else None

    def constant(self, name: str) -> Array | None:
        """The value of a weight."""
        weight = self._weights.get(name)
        return None if weight is None else numpy_helper.to_array(weight)

    def with_constant(self, node: onnx.NodeProto) -> tuple[str, Array | None]:
        """The operand of a node that is computed, and the constant beside it."""
        for name, other in (tuple(node.input), tuple(reversed(node.input))):
            value = self.constant(other)
            if value is not None:
                return name, value
        return node.input[0], None

    def width(self, name: str) -> int | None:
        """Size of the last axis, where it is known."""
        dims = self._shapes.get(name)
        return int(dims[-1].dim_value) or None if dims else None

    def power(self, node: onnx.NodeProto) -> float | None:
        """The exponent, if a node raises to a constant power."""
        if node.op_type == "Sqrt":
            return 0.5
        if node.op_type != "Pow":
            return None
        value = self.constant(node.input[1])
        fits = value is not None and value.size == 1 and self.is_row(value, node.input[0])
        return float(value.item()) if value is not None and fits else None

    def is_inverse(self, node: onnx.NodeProto, name: str) -> bool:
        """Whether a node computes 1 / `name`."""
        if node.op_type == "Reciprocal":
            return True
        one = self.constant(node.input[0]) if node.op_type == "Div" and node.input[1] == name else None
        return one is not None and bool(np.all(one == 1)) and self.is_row(one, name)

    def square_of(self, name: str) -> str | None:
        """What a tensor is the square of."""
        node = self._makers.get(name)
        if node is None:
            return None
        squared = node.op_type == "Mul" and node.input[0] == node.input[1]
        return str(node.input[0]) if squared or self.power(node) == 2 else None

    def _over_last(self, name: str, op: str) -> str | None:
        """What is reduced over its last axis, which stays as one element."""
        node = self.maker(name, op)
        if node is None:
            return None
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = attributes.get("axes")
        if axes is None and len(node.input) > 1:
            known = self.constant(node.input[1])
            axes = None if known is None else known.tolist()
        rank = len(self._shapes.get(node.input[0], ()))
        if attributes.get("keepdims", 1) != 1 or not rank or axes is None or len(axes) != 1:
            return None
        return str(node.input[0]) if axes[0] % rank == rank - 1 else None

    def mean_of(self, name: str) -> str | None:
        """What a tensor is the mean of, over the last axis."""
        return self._over_last(name, "ReduceMean")

    def is_mean(self, mean: str, x: str, width: int) -> bool:
        """Whether `mean` is that of x over the last axis: in one piece, or as sums of all its parts."""
        if self.mean_of(mean) == x:
            return True
        summed: Counter[str] = Counter()
        for name, factor in self.linear(mean).items():
            source = self._over_last(name, "ReduceSum")
            if source is None or abs(factor * width - 1) > _RELATIVE:
                return False
            summed.update(self._parts(source))
        return bool(summed) and summed == Counter(self._parts(x))

    def _parts(self, name: str) -> list[str]:
        """The tensors that one consists of along its last axis, repetition over candidates left out."""
        node = self._makers.get(name)
        if node is not None and node.op_type == "Expand" and self.width(node.input[0]) == self.width(name):
            return self._parts(node.input[0])
        if node is not None and node.op_type == "Concat":
            rank = len(self._shapes.get(name, ()))
            if rank and helper.get_attribute_value(node.attribute[0]) % rank == rank - 1:
                return [part for operand in node.input for part in self._parts(operand)]
        return [name]

    def linear(self, name: str) -> dict[str, float]:
        """A tensor as a sum of others with factors, as far as additions and single constants go.

        Each tensor is taken apart once: in a chain of h + h / 2 the ways back double at every step.
        """
        if name not in self._sums:
            self._sums[name] = self._linear(name)
        return self._sums[name]

    def _linear(self, name: str) -> dict[str, float]:
        node = self._makers.get(name)
        op = node.op_type if node is not None else ""
        if node is not None and op == "Neg":
            return {term: -factor for term, factor in self.linear(node.input[0]).items()}
        if node is not None and op in ("Add", "Sub"):
            left, right = (self.linear(operand) for operand in node.input)
            sign = 1.0 if op == "Add" else -1.0
            return {
                term: left.get(term, 0.0) + sign * right.get(term, 0.0)
                for term in dict.fromkeys((*left, *right))
            }
        if node is not None and op == "Mul":
            source, value = self.with_constant(node)
            if value is not None and value.size == 1:
                factor = float(value.reshape(()))
                return {term: factor * own for term, own in self.linear(source).items()}
        return {name: 1.0}

    def scaled(self, inverse: str, x: str) -> Iterator[tuple[str, Array]]:
        """1 / deviation of x with the constants that it is multiplied by; the plain one last."""
        for node in self.readers(inverse):
            value = self.with_constant(node)[1] if node.op_type == "Mul" else None
            if value is not None and self.is_row(value, x):
                yield node.output[0], value
        yield inverse, np.ones(1, np.float32)

    def moved(self, node: onnx.NodeProto, scaled: str, product: str, sign: float) -> Array | None:
        """The constant in `node` = scaled - sign * product + constant; None: it is something else."""
        other = self.other(node, scaled)
        if other is None or node.op_type not in ("Add", "Sub"):
            return None
        if node.op_type == "Sub" and node.input[0] != scaled:
            return None
        outer = 1.0 if node.op_type == "Add" else -1.0
        if other == product:
            return np.zeros(1, np.float32) if outer == -sign else None
        inner = self._makers.get(other)
        if inner is None or inner.op_type not in ("Add", "Sub") or product not in inner.input:
            return None
        value = self.constant(self.other(inner, product) or "")
        if value is None or not self.is_row(value, scaled):
            return None
        first = inner.input[0] == product
        of_product = 1.0 if inner.op_type == "Add" or first else -1.0
        of_value = 1.0 if inner.op_type == "Add" or not first else -1.0
        if outer * of_product != -sign:
            return None
        return np.asarray(outer * of_value * value, np.float32)

    def affine(self, name: str, scale: Array, shift: Array) -> tuple[str, Array, Array]:
        """Take in the constants that a tensor is multiplied by and that are added to it."""
        while len(self.readers(name)) == 1:
            (node,) = self.readers(name)
            value = self.constant(self.other(node, name) or "")
            if value is None or not self.is_row(value, name):
                break
            if node.op_type == "Mul":
                scale, shift = scale * value.reshape(-1), shift * value.reshape(-1)
            elif node.op_type == "Add":
                shift = shift + value.reshape(-1)
            else:
                break
            name = node.output[0]
        return name, scale, shift

    def is_row(self, value: Array, x: str) -> bool:
        """Whether a constant differs along the last axis only, and broadcasts to x without growing it."""
        if value.ndim > len(self._shapes.get(x, ())):
            return False
        return value.size == 1 or value.shape[-1] == value.size == self.width(x)
