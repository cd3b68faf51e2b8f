"""Which nodes no feature-plan step computes and no dense network can take: they need an engine on the CPU.

Strings, integers and doubles made of raw features never cross to the dense side; what reads them stays with
them on the CPU, up to the first tensor of floats or booleans whose shape is known but for the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from bireme.compiler.cut.blocks import as_block
from bireme.compiler.cut.lineage import Lineage
from bireme.compiler.graph import Graph, Node, node_of
from bireme.compiler.rules.sparse import Aside
from bireme.compiler.shapes import TensorSpec
from bireme.compiler.unroll import CONTROL_FLOW

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["CPU_ONLY", "can_cross", "needs_cpu"]

#: Ops that TensorFlow runs on the CPU only, or on types that no dense network takes.
CPU_ONLY = {
    "AsString",
    "DenseBincount",
    "LookupTableFind",
    "LookupTableFindV2",
    "LookupTableSizeV2",
    "RaggedTensorToTensor",
    "ReadVariableOp",
    "RegexFullMatch",
    "RegexReplace",
    "ResourceGather",
    "SparseReshape",
    "SparseSegmentMean",
    "SparseSegmentSqrtN",
    "SparseSegmentSum",
    "SparseToDense",
    "StaticRegexFullMatch",
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
    "UniqueV2",
}


def can_cross(spec: TensorSpec | None) -> bool:
    """Whether a tensor can become columns: floats or booleans, every dimension but the rows known."""
    if spec is None or spec.shape is None or spec.dtype not in ("float32", "bool"):
        return False
    return len(spec.shape) > 0 and spec.shape[0] is None and None not in spec.shape[1:]


def needs_cpu(
    graph: Graph,
    low: Lowering,
    lineage: Lineage,
    specs: Mapping[str, TensorSpec],
    forced: Set[str] = frozenset(),
) -> set[str]:
    """Names of the nodes that only an engine on the CPU can run.

    Args:
        graph: the folded graph, sorted.
        low: what the feature plan computes natively.
        lineage: where tensors come from.
        specs: dtype and shape of every tensor.
        forced: nodes that no dense network can hold, whatever their inputs.
    """
    found: set[str] = set()

    def stuck(ref: str) -> bool:
        if not lineage.carries_values(ref):
            return False
        spec = specs.get(ref)
        if node_of(ref) in found:
            return not can_cross(spec)
        return lineage.is_raw(ref) and (spec is None or spec.dtype not in ("float32", "bool"))

    def loose(ref: str) -> bool:
        """Raw numbers, as many as a request has: what makes a fixed number of them stays with them."""
        if as_block(low.lower(ref), low.lengths, specs.get(ref)) is not None:
            return False  # native columns, whose number the plan knows where TensorFlow may not
        spec = specs.get(ref)
        # The rows may have wandered: steps of a recurrent layer are [length, rows, …].
        unknown = spec is None or spec.shape is None or list(spec.shape).count(None) > 1
        # Parts of sparse tensors are no such thing, whatever TensorFlow says.
        known = isinstance(low.meaning(ref), Aside)
        return unknown and not known and lineage.is_raw(ref) and lineage.carries_values(ref)

    for node in graph.nodes.values():
        if not node.inputs or not lineage.carries_values(node.output) or low.lower(node.output) is not None:
            continue
        stays = node.name in forced or _only_on_cpu(node, lineage) or any(map(stuck, node.inputs))
        if stays or (lineage.is_raw(node.output) and any(map(loose, node.inputs))):
            found.add(node.name)
    return found


def _only_on_cpu(node: Node, lineage: Lineage) -> bool:
    return node.op in CPU_ONLY | CONTROL_FLOW and any(lineage.carries_values(ref) for ref in node.inputs)
