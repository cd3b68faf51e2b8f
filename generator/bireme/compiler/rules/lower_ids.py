"""Rules that make ids: hashes, lookups, comparisons of strings, crosses, searches; named by `lower.RULES`.

What is computed with integers is in lower_integers.py. Every rule gives None for what it cannot do exactly as
TensorFlow does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bireme.compiler.graph import Node, node_of, tf
from bireme.compiler.rules.id_steps import OPERAND
from bireme.compiler.rules.lower_integers import INTEGERS, as_integers, computed
from bireme.compiler.rules.values import (
    Ids,
    Raw,
    Text,
    Value,
    as_text,
    derive,
)
from bireme.compiler.tables.vocabularies import export_table
from bireme_runtime.text_steps import to_text

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["ID_RULES"]


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
    if capture is None or default is None or kinds[1] not in (*INTEGERS, tf.string):
        return None
    if low.constant(node, 2).ndim:  # type: ignore[union-attr]
        return None  # a vector for every key
    source = as_text(keys) if kinds[0] == tf.string else as_integers(keys) if kinds[0] in INTEGERS else None
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
    return same if node.op == "Equal" else computed(same, ("not", "int64", (OPERAND,)), non_negative=True)


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
    "Reshape": (searched,),
    "Equal": (same_text,),
    "NotEqual": (same_text,),
}
