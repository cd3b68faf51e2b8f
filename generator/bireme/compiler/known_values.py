"""What a graph computes from constants and static shapes: whether a loop goes on, which branch is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.compiler.graph import tf

__all__ = ["KnownValues"]

Array = np.ndarray[Any, Any]

_NUMPY: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Minimum": np.minimum,
    "Maximum": np.maximum,
    "Neg": np.negative,
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalNot": np.logical_not,
    "Identity": lambda x: x,
    "StopGradient": lambda x: x,
    "Squeeze": np.squeeze,
    "Reshape": lambda x, shape: np.reshape(x, shape),
    "ExpandDims": lambda x, axis: np.expand_dims(x, int(axis)),
    "Range": np.arange,
    "GatherV2": lambda x, indices, axis: np.take(x, indices, int(axis)),
    "ConcatV2": lambda *parts: np.concatenate(parts[:-1], int(parts[-1])),
    "Pack": lambda *parts: np.stack(parts),
    "SelectV2": np.where,
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "All": np.all,
    "Any": np.any,
    "Max": np.max,
    "Min": np.min,
    "Prod": np.prod,
    "Sum": np.sum,
}
#: Larger constants are data.
_LARGEST = 1024


class KnownValues:
    """Values of tensors of a tf.Graph, as far as they follow from constants and static shapes."""

    def __init__(self) -> None:
        self._values: dict[str, Array | None] = {}

    def value(self, tensor: Any) -> Array | None:
        """A tensor's value; None if it depends on the request, or is computed in a way not listed here."""
        pending = [tensor]
        while pending:
            current = pending[-1]
            if current.name in self._values:
                pending.pop()
                continue
            if self._followed(current.op):
                missing = [source for source in current.op.inputs if source.name not in self._values]
                if missing:
                    pending.extend(missing)
                    continue
            self._values[current.name] = self._compute(current)
        return self._values[tensor.name]

    @staticmethod
    def _followed(op: Any) -> bool:
        return op.type in _NUMPY or op.type in _REDUCTIONS or op.type in ("Cast", "StridedSlice")

    def _compute(self, tensor: Any) -> Array | None:
        op = tensor.op
        if op.type == "Const":
            value = tf.get_static_value(tensor)
            return np.asarray(value) if value is not None and np.size(value) <= _LARGEST else None
        if op.type in ("Shape", "Size", "Rank"):
            value = tf.get_static_value(tensor)
            return None if value is None else np.asarray(value)
        if op.type == "StridedSlice" and op.inputs[0].op.type == "Shape":
            return self._size(op)
        if not self._followed(op):
            return None
        values = [self._values[source.name] for source in op.inputs]
        known = [value for value in values if value is not None]
        if len(known) != len(values):
            return self._decided(op, values)
        try:
            return self._apply(op, known, tensor.dtype.as_numpy_dtype)
        except (ValueError, TypeError, IndexError):
            return None

    @staticmethod
    def _decided(op: Any, values: list[Array | None]) -> Array | None:
        """`and` with something false is false, whatever the rest is; `or` with something true is true."""
        for kind, decides in (("LogicalAnd", False), ("LogicalOr", True)):
            if op.type == kind and any(v is not None and v.ndim == 0 and bool(v) == decides for v in values):
                return np.asarray(decides)
        return None

    @staticmethod
    def _apply(op: Any, values: list[Array], dtype: Any) -> Array | None:
        if op.type == "Cast":
            return values[0].astype(dtype)
        if op.type == "StridedSlice":
            return _strided_slice(op, values[0], values[1:])
        if op.type in _REDUCTIONS:
            axes = tuple(int(axis) for axis in values[1].reshape(-1))
            return np.asarray(
                _REDUCTIONS[op.type](values[0], axis=axes, keepdims=op.get_attr("keep_dims")), dtype=dtype
            )
        if op.type == "Pack":
            return np.asarray(np.stack(values, op.get_attr("axis")), dtype=dtype)
        if op.type == "Squeeze":
            axes = tuple(op.get_attr("squeeze_dims"))
            return np.asarray(np.squeeze(values[0], axes or None), dtype=dtype)
        if op.type == "GatherV2" and op.get_attr("batch_dims"):
            return None
        return np.asarray(_NUMPY[op.type](*values), dtype=dtype)

    def _size(self, op: Any) -> Array | None:
        """Some sizes out of a shape of which others may be unknown."""
        shape = op.inputs[0].op.inputs[0].shape
        bounds = [self._values[source.name] for source in op.inputs[1:]]
        if shape.rank is None or any(bound is None for bound in bounds):
            return None
        sizes = np.array([-1 if size is None else size for size in shape], dtype=np.int64)
        chosen = _strided_slice(op, sizes, [bound for bound in bounds if bound is not None])
        if chosen is None or (chosen < 0).any():
            return None
        return chosen.astype(op.outputs[0].dtype.as_numpy_dtype)


def _strided_slice(op: Any, value: Array, bounds: list[Array]) -> Array | None:
    if op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask"):
        return None
    place: list[Any] = []
    for axis, (start, end, step) in enumerate(zip(*(bound.tolist() for bound in bounds), strict=True)):
        bit = 1 << axis
        if op.get_attr("shrink_axis_mask") & bit:
            place.append(start)
            continue
        first = None if op.get_attr("begin_mask") & bit else start
        last = None if op.get_attr("end_mask") & bit else end
        place.append(slice(first, last, step))
    return np.asarray(value[tuple(place)])
