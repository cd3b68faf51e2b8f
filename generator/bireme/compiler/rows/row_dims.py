"""How many of what: sizes in a row-wise graph, where one size, the number of rows, is known only per request.

A size is an int or `Rows(k)`: k times the number of rows. TensorFlow's graphs compute shapes (`Shape`,
`Gather`, `Concat`, ...) where they could state them; `evaluate` follows such chains, so that a reshape to
`[shape(x)[0], 4]` is known to keep rows apart. It assumes at least one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx

__all__ = ["TO_THE_END", "Dim", "Rows", "Sizes", "evaluate", "resolve", "sizes_of"]

Array = np.ndarray[Any, Any]
#: A slice that ends here, or later, runs to the end: what tf2onnx writes behind an ellipsis.
TO_THE_END = 10**9


@dataclass(frozen=True)
class Rows:
    """`times` times the number of rows."""

    times: int = 1


Dim = int | Rows


@dataclass(frozen=True)
class Sizes:
    """An integer tensor of sizes.

    Args:
        values: an object array of `Dim`.
        dtype: the numpy dtype of the tensor.
    """

    values: Array
    dtype: Any

    def static(self) -> Array | None:
        """As numbers, if none depends on the request."""
        if any(isinstance(value, Rows) for value in self.values.flat):
            return None
        return np.asarray(self.values, dtype=self.dtype)


def sizes_of(value: Array | None) -> Sizes | None:
    """A constant as sizes, if it may be one."""
    if value is None or not np.issubdtype(value.dtype, np.integer):
        return None
    return Sizes(value.astype(object), value.dtype)


class _UnknownError(Exception):
    """A size that is neither an int nor a multiple of the number of rows."""


def _mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, Rows) and isinstance(b, Rows):
        raise _UnknownError
    if isinstance(a, Rows):
        return Rows(a.times * b) if b else 0  # type: ignore[operator]
    return _mul(b, a) if isinstance(b, Rows) else a * b


def _add(a: Dim, b: Dim) -> Dim:
    if a == 0 or b == 0:
        return b if a == 0 else a
    if isinstance(a, Rows) and isinstance(b, Rows):
        return Rows(a.times + b.times) if a.times + b.times else 0
    if isinstance(a, Rows) or isinstance(b, Rows):
        raise _UnknownError
    return a + b


def _sub(a: Dim, b: Dim) -> Dim:
    return _add(a, Rows(-b.times) if isinstance(b, Rows) else -b)


def _div(a: Dim, b: Dim) -> Dim:
    top = a.times if isinstance(a, Rows) else a
    bottom = b.times if isinstance(b, Rows) else b
    rows = isinstance(a, Rows) and not isinstance(b, Rows)
    if bottom <= 0 or top < 0 or (isinstance(b, Rows) and not isinstance(a, Rows)):
        raise _UnknownError
    if isinstance(a, Rows) and top % bottom:
        raise _UnknownError
    return Rows(top // bottom) if rows else top // bottom


def _max(a: Dim, b: Dim) -> Dim:
    if isinstance(a, Rows) and isinstance(b, Rows):
        return Rows(max(a.times, b.times))
    if isinstance(a, Rows) or isinstance(b, Rows):
        rows, number = (a, b) if isinstance(a, Rows) else (b, a)
        if isinstance(rows, Rows) and isinstance(number, int) and number <= rows.times:
            return rows
        raise _UnknownError
    return max(a, b)


_BINARY: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Mul": _mul,
    "Add": _add,
    "Sub": _sub,
    "Div": _div,
    "Max": _max,
}


def evaluate(
    node: onnx.NodeProto,
    inputs: Sequence[Sizes | None],
    attributes: dict[str, Any],
    shape: Sequence[Dim] | None,
) -> Sizes | None:
    """The sizes that a node computes from sizes.

    Args:
        node: the node.
        inputs: its inputs as sizes; None for one that is not.
        attributes: its attributes.
        shape: for Shape and Size, the shape of its input.

    Returns:
        None where it computes something else.
    """
    op = node.op_type
    if op in ("Shape", "Size"):
        if shape is None:
            return None
        values = np.empty(len(shape), dtype=object)
        values[:] = list(shape)
        if op == "Shape":
            return Sizes(values[attributes.get("start", 0) : attributes.get("end")], np.int64)
        sizes: list[Sizes] = [Sizes(values, np.int64)]
    else:
        sizes = [value for value in inputs if value is not None]
        if len(sizes) != len(inputs) or not sizes:
            return None
    try:
        values = _compute(op, [value.values for value in sizes], attributes)
    except (_UnknownError, IndexError, ValueError, TypeError):
        return None
    if values is None:
        return None
    dtype = sizes[0].dtype
    if op == "Cast":
        dtype = onnx.helper.tensor_dtype_to_np_dtype(attributes["to"])
    return Sizes(np.asarray(values, dtype=object), dtype) if np.issubdtype(dtype, np.integer) else None


def _compute(op: str, values: list[Array], attributes: dict[str, Any]) -> Any:
    first = values[0]
    if op in ("Identity", "Cast"):
        return first
    if op in _BINARY:
        result = values[0]
        for other in values[1:]:
            result = np.frompyfunc(_BINARY[op], 2, 1)(result, other)
        return result
    if op == "Gather" and first.ndim == 1:
        return first[values[1].astype(np.int64)]
    if op == "Concat":
        return np.concatenate(values)
    if op in ("Squeeze", "Reshape", "Unsqueeze"):
        if op == "Reshape" and values[1].size == 1 and first.size == values[1].flat[0]:
            return first.reshape(-1)
        return first.reshape(()) if op == "Squeeze" and first.size == 1 else _widened(op, values)
    if op in ("ReduceProd", "Size"):
        product: Dim = 1
        for value in first.flat:
            product = _mul(product, value)
        result = np.empty((1,), dtype=object)
        result[0] = product
        return result if op == "ReduceProd" and attributes.get("keepdims", 1) else result.reshape(())
    if op == "Slice" and first.ndim == 1:
        start, end = int(values[1].flat[0]), int(values[2].flat[0])
        step = int(values[4].flat[0]) if len(values) > 4 else 1
        return first[start:end:step]
    return None


def _widened(op: str, values: list[Array]) -> Array | None:
    """A number as a list of one."""
    one = values[0].size == 1 and len(values) > 1 and values[1].size == 1
    return values[0].reshape(1) if one and (op == "Reshape" or values[0].ndim == 0) else None


def resolve(wanted: Sequence[Dim], shape: Sequence[Dim], allow_zero: bool = False) -> list[Dim] | None:
    """The shape that a Reshape makes: 0 copies a size, -1 takes what is left.

    Args:
        wanted: the Reshape's second input.
        shape: the shape of its first.
        allow_zero: 0 means 0.
    """
    result = list(wanted)
    if 0 in result and not allow_zero:
        if any(value == 0 and axis >= len(shape) for axis, value in enumerate(result)):
            return None
        result = [shape[axis] if value == 0 else value for axis, value in enumerate(result)]
    size, rows = _product(shape)
    known, known_rows = _product([value for value in result if value != -1])
    if result.count(-1) == 1:
        if known <= 0 or size % known or rows - known_rows not in (0, 1):
            return None
        left = size // known
        result[result.index(-1)] = Rows(left) if rows > known_rows else left
    elif (size, rows) != (known, known_rows):
        return None
    return result if min(size, known) > 0 else None


def _product(shape: Sequence[Dim]) -> tuple[int, int]:
    """The factor in numbers, and how often the number of rows is a factor."""
    numbers = prod(value.times if isinstance(value, Rows) else value for value in shape)
    return numbers, sum(isinstance(value, Rows) for value in shape)
