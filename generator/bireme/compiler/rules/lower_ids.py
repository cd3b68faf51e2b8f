"""Rules about integers: hashes, lookups, arithmetic, comparisons, choices, crosses.

Named by `lower.RULES`. Every rule gives None for what it cannot do exactly as TensorFlow does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.compiler.graph import Node, node_of, tf
from bireme.compiler.rules.id_steps import OPERAND
from bireme.compiler.rules.sparse import Sizes
from bireme.compiler.rules.values import (
    Ids,
    Masked,
    Numbers,
    Raw,
    Shape,
    Source,
    Text,
    Value,
    as_ids,
    as_text,
    derive,
)
from bireme.compiler.tables.vocabularies import export_table
from bireme_runtime.text_steps import to_text

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["ID_RULES", "as_integers", "is_single"]

_INTEGERS = (tf.int32, tf.int64)
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


def hashed(low: Lowering, node: Node) -> Value | None:
    """`StringToHashBucketFast`, `…Strong` and the legacy `StringToHashBucket`."""
    text = as_text(low.lower(node.inputs[0]))
    if text is None:
        return None
    buckets = int(node.attr["num_buckets"].i)
    if node.op == "StringToHashBucketStrong":
        key = tuple(int(word) for word in node.attr["key"].list.i)
        return derive(text, "hash_strong", buckets, key, non_negative=True)
    kind = "hash_bucket" if node.op == "StringToHashBucketFast" else "hash_legacy"
    return derive(text, kind, buckets, non_negative=True)


def find(low: Lowering, node: Node) -> Value | None:
    """A lookup table: ids of strings or integers, or strings of them."""
    keys, default = low.lower(node.inputs[1]), low.scalar(node, 2)
    capture = low.graph.captures.get(low.graph.producer(node.inputs[0]).name)
    kinds = (tf.as_dtype(node.attr["Tin"].type), tf.as_dtype(node.attr["Tout"].type))
    if capture is None or default is None or kinds[1] not in (*_INTEGERS, tf.string):
        return None
    if low.constant(node, 2).ndim:  # type: ignore[union-attr]
        return None  # a vector for every key
    source = as_text(keys) if kinds[0] == tf.string else as_integers(keys) if kinds[0] in _INTEGERS else None
    if source is None:
        return None
    values = export_table(capture.handle, *kinds)[1]
    if values.ndim != 1:
        return None
    kind = "vocabulary" if kinds[0] == tf.string else "int_vocabulary"
    if kinds[1] != tf.string:
        given = int(default)
        lowest = min(given, int(values.min(initial=0)))
        return derive(source, kind, given, kinds, non_negative=lowest >= 0, table=capture)
    # The ids stand for the table's different strings in order; the default string comes behind them all.
    texts = tuple(to_text(value) for value in [*values.tolist(), default])
    ids = derive(source, kind, len(texts) - 1, kinds, non_negative=True, table=capture)
    return Text(ids.feature, "pick", texts, ids.shape, (ids,))


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
    if dtype not in (*_INTEGERS, tf.bool):
        return None
    return _compute(low, _COMPUTED[node.op], dtype, node, range(len(node.inputs)))


def choose(low: Lowering, node: Node) -> Value | None:
    """`where(condition, ids, ids)`."""
    dtype = tf.as_dtype(node.attr["T"].type)
    if dtype not in (*_INTEGERS, tf.bool):
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
    if target == tf.bool and given in _INTEGERS and integers is not None:
        return _as(integers, ("not_equal", "int64", (OPERAND, 0)), non_negative=True)
    if target not in _INTEGERS:
        return None
    if integers is not None and (given == target or given == tf.int32 or _fits(integers)):
        return as_ids(integers)
    floats = isinstance(value, Raw) and value.dtype in ("float32", "float64") and not value.sequence
    if integers is None and not floats:
        return None
    assert isinstance(value, (Raw, Ids, Masked))
    source = value if isinstance(value, Raw) else integers
    assert source is not None
    return _as(source, ("cast", _KINDS[target], (OPERAND,)), non_negative=given == tf.bool)


def _as(source: Source, parameters: tuple[Any, ...], non_negative: bool) -> Ids:
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


def same_text(low: Lowering, node: Node) -> Value | None:
    """Strings equal, or not, to a constant or to other strings."""
    left, right = as_text(low.lower(node.inputs[0])), as_text(low.lower(node.inputs[1]))
    constants = [low.scalar(node, 0), low.scalar(node, 1)]
    if left is not None and right is not None:
        if left.shape != right.shape:
            return None
        same = Ids(left.feature, "same", (), left.shape, True, sources=(left, right))
    else:
        text, constant = left or right, constants[1 if left is not None else 0]
        if text is None or not isinstance(constant, bytes):
            return None
        same = derive(text, "measure", "equals", to_text(constant), non_negative=True)
    return same if node.op == "Equal" else _as(same, ("not", "int64", (OPERAND,)), non_negative=True)


def cross(low: Lowering, node: Node) -> Value | None:
    """Keras' `HashedCrossing`: `SparseCross` of single values, made dense again."""
    crossed = low.graph.producer(node.inputs[0])
    if crossed.op != "SparseCross" or crossed.attr["N"].i or not crossed.attr["hashed_output"].b:
        return None
    # Indices, shape and values must all be those of the cross.
    if [node_of(ref) for ref in node.inputs[:3]] != [crossed.name] * 3 or len(crossed.inputs) < 2:
        return None
    buckets = int(crossed.attr["num_buckets"].i) or np.iinfo(np.int64).max
    columns = [low.lower(ref) for ref in crossed.inputs]
    sources = tuple(s for s in (as_text(column) or _integers(column) for column in columns) if s is not None)
    if len(sources) < len(columns) or {source.shape for source in sources} != {("R", 1)}:
        return None
    parameters = (int(buckets), int(crossed.attr["hash_key"].i))
    return Ids(sources[0].feature, "cross", parameters, ("R", 1), True, sources=sources)


def _integers(value: Value | None) -> Raw | Ids | None:
    bare = isinstance(value, Raw) and value.dtype == "bool"
    return None if bare else as_integers(value)


def searched(low: Lowering, node: Node) -> Value | None:
    """`tf.searchsorted(edges, x)`: a reshaped `LowerBound` or `UpperBound` of a number's rows."""
    bound = low.graph.producer(node.inputs[0])
    target = low.graph.producer(node.inputs[1])
    if bound.op not in ("LowerBound", "UpperBound") or target.op != "Shape":
        return None
    edges, rows = low.constant(bound, 0), low.graph.producer(bound.inputs[1])
    # One row of edges, and all numbers in one row: then the result has the shape of the numbers.
    if edges is None or edges.ndim != 2 or len(edges) != 1 or rows.op != "Reshape":
        return None
    value = low.lower(rows.inputs[0])
    if rows.inputs[0] != target.inputs[0] or not isinstance(value, Raw) or value.shape != ("R",):
        return None
    if value.dtype != "float32" or edges.dtype != np.float32 or (np.diff(edges[0]) < 0).any():
        return None
    # `bucketize` counts the edges that are not above x; those that are below x it counts by their successors.
    ascending = [float(edge) if bound.op == "UpperBound" else _after(edge) for edge in edges[0]]
    return derive(value, "bucketize", *ascending, non_negative=True)


def _after(edge: np.float32) -> float:
    """The next larger FP32 number, of those that TensorFlow does not take for 0."""
    following, smallest = np.nextafter(edge, np.float32(np.inf)), np.finfo(np.float32).tiny
    if abs(following) >= smallest:
        return float(following)
    return 0.0 if edge <= -smallest else float(smallest)


Rule = Callable[["Lowering", Node], "Value | None"]
ID_RULES: dict[str, tuple[Rule, ...]] = {
    "StringToHashBucket": (hashed,),
    "StringToHashBucketFast": (hashed,),
    "StringToHashBucketStrong": (hashed,),
    "LookupTableFindV2": (find,),
    "SparseToDense": (cross,),
    "Select": (choose,),
    "SelectV2": (choose,),
    "Cast": (cast,),
    "Reshape": (searched,),
    **dict.fromkeys(_COMPUTED, (compute,)),
    "Equal": (same_text, compute),
    "NotEqual": (same_text, compute),
}
