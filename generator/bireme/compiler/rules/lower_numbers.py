"""Rules about floats: casts to them, intervals, and chains of scalar operations; named by `lower.RULES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.values import Ids, Numbers, Raw, Value, derive, numbers

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["NUMBER_RULES"]

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


def _cast(low: Lowering, node: Node) -> Value | None:
    value, target = low.lower(node.inputs[0]), tf.as_dtype(node.attr["DstT"].type)
    if isinstance(value, Raw) and target == tf.float32:
        known = value.dtype in ("int32", "int64", "float64", "bool")
        return Numbers(value.feature, (), value.shape) if known else None
    return None


def _bucketize(low: Lowering, node: Node) -> Value | None:
    value = low.lower(node.inputs[0])
    if isinstance(value, Ids):
        return derive(value, "bucketize", *node.attr["boundaries"].list.f, non_negative=True)
    if isinstance(value, Numbers) and value.source is None and not value.chain:
        # An integer cast to FP32 compares like the integer itself; a double would be rounded before.
        placeholder = low.graph.features.get(value.feature)  # none: made by a piece of the graph
        raw = low.lower(f"{placeholder}:0") if placeholder is not None else None
        integer = isinstance(raw, Raw) and raw.dtype.startswith("int")
        value = replace(raw, shape=value.shape) if raw is not None and integer else None
    if not isinstance(value, Raw) or value.dtype not in ("float32", "int32", "int64", "float64"):
        return None
    return derive(value, "bucketize", *node.attr["boundaries"].list.f, non_negative=True)


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


Rule = Callable[["Lowering", Node], "Value | None"]
NUMBER_RULES: dict[str, tuple[Rule, ...]] = {
    "Cast": (_cast,),
    "Bucketize": (_bucketize,),
    **dict.fromkeys(_BINARY, (_binary,)),
    **dict.fromkeys(_UNARY, (_unary,)),
}
