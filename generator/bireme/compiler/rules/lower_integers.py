"""Rules about integers and truth values: arithmetic, comparisons, choices, casts. Named by `lower.RULES`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.compiler.graph import Node, tf
from bireme.compiler.rules.id_steps import OPERAND
from bireme.compiler.rules.sparse import Sizes
from bireme.compiler.rules.values import Ids, Masked, Numbers, Raw, Shape, Source, Value, as_ids

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["INTEGERS", "INTEGER_RULES", "as_integers", "computed", "is_single"]

INTEGERS = (tf.int32, tf.int64)
_KINDS = {tf.int32: "int32", tf.int64: "int64"}
#: TensorFlow's op → function of a `compute` step.
_COMPUTED = {
    "Abs": "abs",
    "Add": "add",
    "AddV2": "add",
    "Equal": "equal",
    "FloorDiv": "floordiv",
    "FloorMod": "floormod",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "less",
    "LessEqual": "less_equal",
    "LogicalAnd": "and",
    "LogicalNot": "not",
    "LogicalOr": "or",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mod": "mod",
    "Mul": "mul",
    "Neg": "neg",
    "NotEqual": "not_equal",
    "Sub": "sub",
    "TruncateMod": "mod",
}
_DIVISIONS = ("floordiv", "floormod", "mod")
_OF_TESTS = {"ne": "not_equal", "ge": "greater_equal", "gt": "greater", "lt": "less"}
_TRUTHS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "not")


def is_single(value: Value) -> bool:
    """Whether a row has one element."""
    return value.shape[:1] == ("R",) and "L" not in value.shape


def as_integers(value: Value | None) -> Raw | Ids | None:
    """Integers or truth values that a step can compute with."""
    if isinstance(value, Ids) or (isinstance(value, Raw) and value.dtype in ("int32", "int64", "bool")):
        return value
    if not isinstance(value, Masked):
        return None
    if isinstance(value.source, Ids) and isinstance(value.value, int) and value.also is None:
        parameters = (_OF_TESTS[value.test], "int64", (OPERAND, value.value))
        return Ids(value.source.feature, "compute", parameters, value.shape, True, sources=(value.source,))
    return None


def compute(low: Lowering, node: Node) -> Value | None:
    """Integer arithmetic and comparisons of ids, with constants or each other."""
    dtype = tf.as_dtype(node.attr["T"].type) if "T" in (node.attr or {}) else tf.bool
    if dtype not in (*INTEGERS, tf.bool):
        return None
    return _compute(low, _COMPUTED[node.op], dtype, node, range(len(node.inputs)))


def choose(low: Lowering, node: Node) -> Value | None:
    """`where(condition, ids, ids)`."""
    dtype = tf.as_dtype(node.attr["T"].type)
    if dtype not in (*INTEGERS, tf.bool):
        return None
    return _compute(low, "where", dtype, node, range(3))


def _compute(low: Lowering, function: str, dtype: Any, node: Node, inputs: Sequence[int]) -> Value | None:
    found = [_operand(low, node, index) for index in inputs]
    operands: list[tuple[Any, Shape]] = [entry for entry in found if entry is not None]
    sources = tuple(operand for operand, _ in operands if not isinstance(operand, int))
    shapes = {shape for operand, shape in operands if shape or not isinstance(operand, int)}
    if len(operands) < len(found) or not sources or len(shapes) != 1:
        return None
    if function in _DIVISIONS and not (isinstance(operands[1][0], int) and operands[1][0] > 0):
        return None  # by zero, TensorFlow raises an error
    if any(isinstance(operand, Raw) and operand.dtype == "string" for operand in sources):
        return None
    given = tuple(operand if isinstance(operand, int) else OPERAND for operand, _ in operands)
    parameters = (function, _KINDS.get(dtype, "int64"), given)
    non_negative = _non_negative(function, [operand for operand, _ in operands])
    return Ids(sources[0].feature, "compute", parameters, shapes.pop(), non_negative, sources=sources)


def _operand(low: Lowering, node: Node, index: int) -> tuple[int | Source, Shape] | None:
    """An operand and its shape; () for a constant that takes any shape."""
    constant = low.constant(node, index)
    if constant is not None:
        fits = constant.size == 1 and constant.ndim <= 1 and constant.dtype.kind in "ib"
        return (int(constant.reshape(-1)[0]), ()) if fits else None
    producer = low.graph.producer(node.inputs[index])
    if producer.op in ("ZerosLike", "OnesLike"):
        like = low.lower(producer.inputs[0])
        fill = int(producer.op == "OnesLike")
        return (fill, like.shape) if isinstance(like, (Raw, Ids)) else None
    if producer.op == "Fill":
        sizes, fill = low.meaning(producer.inputs[0]), low.scalar(producer, 1)
        known = isinstance(sizes, Sizes) and not sizes.scalar and np.asarray(fill).dtype.kind in "ib"
        return (int(fill), sizes.dims) if known and isinstance(sizes, Sizes) else None
    value = as_integers(low.lower(node.inputs[index]))
    return None if value is None else (value, value.shape)


def _non_negative(function: str, operands: Sequence[int | Source]) -> bool:
    signs = [x >= 0 if isinstance(x, int) else isinstance(x, Ids) and x.non_negative for x in operands]
    if function in ("floormod", *_TRUTHS):
        return True
    if function == "where":
        return all(signs[1:])
    if function in ("add", "minimum", "mod", "floordiv"):
        return all(signs)
    return function == "maximum" and any(signs)


def cast(low: Lowering, node: Node) -> Value | None:
    """Integers, truth and floats as integers; ids as numbers."""
    value, target = low.lower(node.inputs[0]), tf.as_dtype(node.attr["DstT"].type)
    given = tf.as_dtype(node.attr["SrcT"].type)
    integers = as_integers(value)
    if target == tf.float32 and isinstance(integers, Ids) and is_single(integers):
        return Numbers(integers.feature, (), integers.shape, integers)
    if target == tf.float32 and given == tf.bool and isinstance(value, Ids) and "L" in value.shape:
        return Masked(value, 0, value.shape)
    if target == tf.bool and given in INTEGERS and integers is not None:
        return computed(integers, ("not_equal", "int64", (OPERAND, 0)), non_negative=True)
    if target not in INTEGERS:
        return None
    if integers is not None and (given == target or given == tf.int32 or _fits(integers)):
        return as_ids(integers)
    floats = isinstance(value, Raw) and value.dtype in ("float32", "float64") and not value.sequence
    if integers is None and not floats:
        return None
    assert isinstance(value, (Raw, Ids, Masked))
    source = value if isinstance(value, Raw) else integers
    assert source is not None
    return computed(source, ("cast", _KINDS[target], (OPERAND,)), non_negative=given == tf.bool)


def computed(source: Source, parameters: tuple[Any, ...], non_negative: bool) -> Ids:
    """Ids that a `compute` step makes of one source."""
    return Ids(source.feature, "compute", parameters, source.shape, non_negative, sources=(source,))


def _fits(value: Raw | Ids) -> bool:
    """Whether no value is beyond int32, so that narrowing keeps it."""
    if isinstance(value, Raw):
        return value.dtype == "int32"
    if value.kind in ("hash_bucket", "hash_strong", "hash_legacy", "cross"):
        return bool(value.parameters[0] <= 1 << 31)
    if value.kind == "compute":
        function, dtype, operands = value.parameters
        small_modulus = function == "floormod" and operands[1] <= 1 << 31
        return dtype == "int32" or function in _TRUTHS or small_modulus
    return value.kind in ("bucketize", "same")


Rule = Callable[["Lowering", Node], "Value | None"]
INTEGER_RULES: dict[str, tuple[Rule, ...]] = {
    "Select": (choose,),
    "SelectV2": (choose,),
    "Cast": (cast,),
    **dict.fromkeys(_COMPUTED, (compute,)),
}
