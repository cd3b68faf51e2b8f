"""Recognises feature transforms: which tensors the CPU's feature plan can compute natively.

`Lowering.lower(tensor)` returns a `Value` (see values.py) or None. One rule per op, looked up by name in
`RULES`; a rule sees the node and returns the value of its first output. To teach the kit a new transform,
add a rule here, a step in `bireme_runtime.plan` and its kernel in `bireme_runtime.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bireme.compiler.fold import GATHERS, table_reads
from bireme.compiler.graph import Graph, Node, tf
from bireme.compiler.values import (
    Count,
    Ids,
    Masked,
    Numbers,
    Raw,
    Rows,
    Shape,
    Value,
    drop,
    insert,
    reshape,
    same_mask,
    strided,
)

__all__ = ["RULES", "Lowering"]

_UNARY = {
    "Log1p": "log1p",
    "Log": "log",
    "Sqrt": "sqrt",
    "Square": "square",
    "Abs": "abs",
    "Neg": "neg",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "AddV2": "add",
    "Sub": "sub",
    "Mul": "mul",
    "RealDiv": "div",
    "Maximum": "maximum",
    "Minimum": "minimum",
}


class Lowering:
    """Memoised meaning of every tensor of one graph.

    Args:
        graph: the folded graph.
        shapes: feature → symbolic shape of its placeholder.
    """

    def __init__(self, graph: Graph, shapes: dict[str, Shape]) -> None:
        self.graph = graph
        self.tables = table_reads(graph)
        self._feature_of = {node: feature for feature, node in graph.features.items()}
        self._shapes = shapes
        self._memo: dict[str, Value | None] = {}

    def lower(self, ref: str) -> Value | None:
        """The CPU-side meaning of a tensor, or None if it belongs to the dense side."""
        if ref not in self._memo:
            node = self.graph.producer(ref)
            rule = RULES.get(node.op)
            self._memo[ref] = rule(self, node) if rule is not None and ref == node.output else None
        return self._memo[ref]

    def feature(self, node: Node) -> Value | None:
        """A placeholder: a raw feature."""
        name = self._feature_of.get(node.name)
        if name is None:
            return None
        dtype = tf.as_dtype(node.attr["dtype"].type).name
        return Raw(name, dtype, self._shapes[name])

    def constant(self, node: Node, index: int) -> np.ndarray[Any, Any] | None:
        """Value of an input if it is constant."""
        return self.graph.constant(node.inputs[index])

    def scalar(self, node: Node, index: int) -> Any:
        """A constant input with a single element, as a Python value; else None."""
        value = self.constant(node, index)
        return value.reshape(-1)[0] if value is not None and value.size == 1 else None


def numbers(value: Value | None) -> Numbers | None:
    """A float feature, raw or transformed, as `Numbers`."""
    if isinstance(value, Raw) and value.dtype == "float32" and not value.sequence:
        return Numbers(value.feature, (), value.shape)
    return value if isinstance(value, Numbers) else None


def as_ids(value: Value | None) -> Ids | None:
    """Ids, or an integer feature that is used as one."""
    if isinstance(value, Raw) and value.dtype in ("int32", "int64"):
        return Ids(value.feature, "identity", (), value.shape, non_negative=False)
    return value if isinstance(value, Ids) else None


def _hash(low: Lowering, node: Node) -> Value | None:
    raw = low.lower(node.inputs[0])
    if not isinstance(raw, Raw):
        return None
    buckets = int(node.attr["num_buckets"].i)
    return Ids(raw.feature, "hash_bucket", (buckets,), raw.shape, non_negative=True)


def _find(low: Lowering, node: Node) -> Value | None:
    raw, default = low.lower(node.inputs[1]), low.scalar(node, 2)
    capture = low.graph.captures.get(low.graph.producer(node.inputs[0]).name)
    if not isinstance(raw, Raw) or capture is None or default is None:
        return None
    if node.attr["Tin"].type not in (tf.string, tf.int64) or node.attr["Tout"].type != tf.int64:
        return None
    kind = "vocabulary" if raw.dtype == "string" else "int_vocabulary"
    return Ids(raw.feature, kind, (int(default),), raw.shape, non_negative=int(default) >= 0, table=capture)


def _select(low: Lowering, node: Node) -> Value | None:
    """Two idioms of Keras: a mask token's own id; the wrap of negative ids (which are refused here)."""
    condition = low.graph.producer(node.inputs[0])
    if condition.op == "Equal":
        found, raw = low.lower(node.inputs[2]), low.lower(condition.inputs[0])
        token, number = low.scalar(condition, 1), low.scalar(node, 1)
        if not isinstance(found, Ids) or found.kind != "vocabulary" or not isinstance(raw, Raw):
            return None
        if raw.feature != found.feature or not isinstance(token, bytes) or number is None:
            return None
        return replace(found, overrides=(*found.overrides, (token, int(number))))
    if condition.op == "Less" and low.scalar(condition, 1) == 0:
        ids, wrapped = as_ids(low.lower(node.inputs[2])), low.graph.producer(node.inputs[1])
        is_wrap = wrapped.op == "AddV2" and wrapped.inputs[0] == node.inputs[2] == condition.inputs[0]
        return ids if is_wrap and low.scalar(wrapped, 1) is not None else None
    return None


def _cast(low: Lowering, node: Node) -> Value | None:
    value, target = low.lower(node.inputs[0]), tf.as_dtype(node.attr["DstT"].type)
    if isinstance(value, Ids):
        return value if target.is_integer else None
    if isinstance(value, Masked):
        return value if target == tf.float32 else None
    if isinstance(value, Raw) and not value.sequence:
        if target == tf.float32 and value.dtype in ("int32", "int64", "float64"):
            return Numbers(value.feature, (), value.shape)
        if target.is_integer and value.dtype in ("int32", "int64"):
            return as_ids(value)
    return None


def _bucketize(low: Lowering, node: Node) -> Value | None:
    raw = low.lower(node.inputs[0])
    if not isinstance(raw, Raw) or raw.dtype not in ("float32", "int32", "int64", "float64"):
        return None
    return Ids(raw.feature, "bucketize", tuple(node.attr["boundaries"].list.f), raw.shape, non_negative=True)


def _gather(low: Lowering, node: Node) -> Value | None:
    if node.name not in low.tables:
        return None
    ids = as_ids(low.lower(node.inputs[GATHERS[node.op][1]]))
    if ids is None or (node.op == "GatherV2" and low.scalar(node, 2) != 0):
        return None
    variable = low.tables[node.name]
    shape = low.graph.captures[variable].variable.shape
    if shape.rank != 2:
        return None
    width = int(shape[1])
    return Rows(ids, variable, width, (*ids.shape, width))


def _not_equal(low: Lowering, node: Node) -> Value | None:
    source, value = low.lower(node.inputs[0]), low.scalar(node, 1)
    if value == b"" and isinstance(source, Raw) and source.sequence:
        return Masked(source, "", source.shape)
    ids = as_ids(source)
    if ids is None or "L" not in ids.shape or not isinstance(value, np.integer):
        return None
    return Masked(ids, int(value), ids.shape)


def _multiply(low: Lowering, node: Node) -> Value | None:
    left, right = low.lower(node.inputs[0]), low.lower(node.inputs[1])
    if isinstance(left, Masked):
        left, right = right, left
    if isinstance(left, Rows) and isinstance(right, Masked):
        fits = left.pool is None and left.mask is None and right.shape == (*left.ids.shape, 1)
        return replace(left, mask=right) if fits else None
    return _binary(low, node)


def _sum(low: Lowering, node: Node) -> Value | None:
    value, axis = low.lower(node.inputs[0]), low.scalar(node, 1)
    if value is None or axis is None or "L" not in value.shape:
        return None
    position = value.shape.index("L")
    if int(axis) % len(value.shape) != position:
        return None
    kept = (1,) if node.attr["keep_dims"].b else ()
    shape = (*value.shape[:position], *kept, *value.shape[position + 1 :])
    if isinstance(value, Rows) and value.pool is None:
        return replace(value, pool="sum", shape=shape)
    if isinstance(value, Masked):
        return Count(value, shape)
    return None


def _divide(low: Lowering, node: Node) -> Value | None:
    """A masked sum over the count of the same mask is a mean."""
    total, count = low.lower(node.inputs[0]), low.lower(node.inputs[1])
    if isinstance(total, Rows) and isinstance(count, Count):
        safe = count.floor > 0 or node.op == "DivNoNan"
        aligned = len(count.shape) == len(total.shape) and count.shape[-1] == 1
        if total.pool == "sum" and same_mask(total.mask, count.mask) and safe and aligned:
            return replace(total, pool="mean", floor=count.floor or 1.0)
        return None
    return _binary(low, node) if node.op != "DivNoNan" else None


def _maximum(low: Lowering, node: Node) -> Value | None:
    value, floor = low.lower(node.inputs[0]), low.scalar(node, 1)
    if isinstance(value, Count) and floor is not None:
        return replace(value, floor=max(value.floor, float(floor)))
    return _binary(low, node)


def _binary(low: Lowering, node: Node) -> Value | None:
    operation = _BINARY[node.op]
    value, constant = numbers(low.lower(node.inputs[0])), low.constant(node, 1)
    if value is None and operation in ("add", "mul", "sub", "maximum", "minimum"):
        value, constant = numbers(low.lower(node.inputs[1])), low.constant(node, 0)
        operation = "rsub" if operation == "sub" else operation
    if value is None or constant is None or constant.size != 1 or constant.ndim > len(value.shape):
        return None
    return replace(value, chain=(*value.chain, (operation, float(constant.reshape(-1)[0]))))


def _unary(low: Lowering, node: Node) -> Value | None:
    value = numbers(low.lower(node.inputs[0]))
    return replace(value, chain=(*value.chain, (_UNARY[node.op], None))) if value is not None else None


def _strided(low: Lowering, node: Node) -> Value | None:
    value = low.lower(node.inputs[0])
    bounds = [low.constant(node, i) for i in (1, 2, 3)]
    if value is None or any(bound is None for bound in bounds):
        return None
    begin, end, step = ([int(x) for x in bound] for bound in bounds if bound is not None)
    return strided(value, node.attr, begin, end, step)


def _expand(low: Lowering, node: Node) -> Value | None:
    value, axis = low.lower(node.inputs[0]), low.scalar(node, 1)
    return insert(value, int(axis)) if value is not None and axis is not None else None


def _squeeze(low: Lowering, node: Node) -> Value | None:
    value = low.lower(node.inputs[0])
    return drop(value, list(node.attr["squeeze_dims"].list.i)) if value is not None else None


def _reshape(low: Lowering, node: Node) -> Value | None:
    value, target = low.lower(node.inputs[0]), low.constant(node, 1)
    return reshape(value, [int(d) for d in target]) if value is not None and target is not None else None


RULES: dict[str, Callable[[Lowering, Node], Value | None]] = {
    "Placeholder": Lowering.feature,
    "StringToHashBucketFast": _hash,
    "LookupTableFindV2": _find,
    "SelectV2": _select,
    "Cast": _cast,
    "Bucketize": _bucketize,
    **dict.fromkeys(GATHERS, _gather),
    "NotEqual": _not_equal,
    "Mul": _multiply,
    "Sum": _sum,
    "RealDiv": _divide,
    "DivNoNan": _divide,
    "Maximum": _maximum,
    **dict.fromkeys(("Add", "AddV2", "Sub", "Minimum"), _binary),
    **dict.fromkeys(_UNARY, _unary),
    "StridedSlice": _strided,
    "ExpandDims": _expand,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
}
