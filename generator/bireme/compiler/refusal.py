"""What `split` says where it stops: which op stands in the way, and what would help."""

from __future__ import annotations

from bireme.compiler.graph import Node, node_of
from bireme.compiler.lower import Lowering
from bireme.compiler.values import Count, Ids, Masked, Numbers, Raw, Rows, Text, Value, value_feature
from bireme.errors import CompileError

__all__ = ["computed_table", "culprit", "half_precision", "not_a_transform", "runs_on_cpu_only", "unfit"]

#: Ops that TensorFlow runs on the CPU only, or on types that no dense network takes.
_CPU_ONLY = {
    "AsString",
    "LookupTableFind",
    "LookupTableFindV2",
    "LookupTableSizeV2",
    "RaggedTensorToTensor",
    "ReadVariableOp",
    "RegexReplace",
    "ResourceGather",
    "SparseSegmentMean",
    "SparseSegmentSum",
    "SparseToDense",
    "StaticRegexReplace",
    "StringJoin",
    "StringLength",
    "StringLower",
    "StringSplitV2",
    "StringStrip",
    "StringToHashBucket",
    "StringToHashBucketFast",
    "StringToHashBucketStrong",
    "StringToNumber",
    "StringUpper",
    "Substr",
    "Unique",
}


_KNOWN = (
    "it knows vocabularies and lookup tables, hashes and crosses of strings and integers, bucket edges,"
    " integer arithmetic and comparisons, lower and upper case of ASCII, strip, substr, join, split into a"
    " fixed number of parts, simple regular expressions, numbers as text and back, row ids, arithmetic with"
    " constants, and masked sums and means over a sequence"
)


def computed_table(node: Node) -> CompileError:
    """The error for rows of a table that the model makes from its variables."""
    return CompileError(
        f"op {node.op} (node '{node.name}')",
        "looks rows up in a table that the model computes first",
        "store the finished table in a variable of its own",
    )


def half_precision(node: Node) -> CompileError:
    """The error for a model that was trained in mixed precision."""
    return CompileError(
        f"op {node.op} (node '{node.name}')",
        "computes in half precision, which no two runtimes do alike",
        "export the model with the policy 'float32'",
    )


def runs_on_cpu_only(node: Node) -> bool:
    """Whether an op can be no part of a dense network."""
    return node.op in _CPU_ONLY or not node.inputs


def culprit(low: Lowering, reader: Node, ref: str) -> Node:
    """The op nearest to the features that keeps `ref`, which `reader` reads, from being computed natively."""
    while low.lower(ref) is None:
        reader = low.graph.producer(ref)
        behind = [
            source
            for source in reader.inputs
            if low.graph.constant(source) is None and node_of(source) not in low.graph.captures
        ]
        unknown = [source for source in behind if low.lower(source) is None]
        if not unknown:
            break
        ref = unknown[0]
    return reader


def not_a_transform(node: Node) -> CompileError:
    """The error for an op that has to run on the CPU, and that no rule knows."""
    return CompileError(
        f"op {node.op} (node '{node.name}')",
        "is no feature transform, or not in a form, that this version can carry over exactly",
        _KNOWN,
    )


def unfit(value: Value, reader: Node | None, task: str) -> CompileError:
    """The error for a CPU-side value that reaches the dense side without being columns of numbers."""
    what, hint = {
        Raw: ("a raw feature that is no single float", "cast a number to float32; look a string up"),
        Text: ("strings", "hash them, or look them up"),
        Ids: ("integer ids", "ids can only select rows of an embedding table"),
        Masked: ("a sequence mask", "a mask can only select what a sum or a mean counts"),
        Count: (
            "a sequence's length",
            "a mean divides a masked sum by maximum(length of the same mask, 1), or with divide_no_nan",
        ),
        Rows: (
            "an unpooled sequence of embeddings",
            "pool it: sum(rows · mask, 1), or that over maximum(sum(mask, 1), 1)",
        ),
        Numbers: ("a number", ""),
    }[type(value)]
    where = f"op {reader.op} (node '{reader.name}')" if reader is not None else f"output '{task}'"
    return CompileError(
        where,
        f"reads {what}, made of feature '{value_feature(value)}', which this version cannot hand to the DNN",
        hint,
    )
