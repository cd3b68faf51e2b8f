"""Where tensors come from: which features they need, and whether any weight has touched them yet."""

from __future__ import annotations

from collections.abc import Iterable

from bireme.compiler.cut.reads import table_reads
from bireme.compiler.graph import Graph, node_of

__all__ = ["SHAPE_OPS", "Lineage"]

#: Ops whose result tells of their input's shape only, not of its values.
SHAPE_OPS = {"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"}

#: Ops that mix a row's values by weights: behind them begins the network.
_WEIGHING = {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv3D", "Einsum", "MatMul"}


class Lineage:
    """What every node of a folded graph is made of.

    Args:
        graph: nodes in an order where every node follows its inputs.
    """

    def __init__(self, graph: Graph) -> None:
        feature_of = {node: feature for feature, node in graph.features.items()}
        tables = table_reads(graph)
        self._needs: dict[str, frozenset[str]] = {}
        self._values: set[str] = set()
        self._raw: set[str] = set()
        for node in graph.nodes.values():
            sources = [node_of(ref) for ref in node.inputs]
            own = frozenset({feature_of[node.name]} if node.name in feature_of else ())
            self._needs[node.name] = own.union(*(self._needs[source] for source in sources))
            if own or (node.op not in SHAPE_OPS and any(source in self._values for source in sources)):
                self._values.add(node.name)
            weighs = node.op in _WEIGHING or node.name in tables
            if not weighs and all(source in self._raw or not self._needs[source] for source in sources):
                self._raw.add(node.name)

    def features(self, refs: Iterable[str]) -> list[str]:
        """Features that tensors need, be it for their shape only; sorted."""
        return sorted(frozenset().union(*(self._needs[node_of(ref)] for ref in refs)))

    def carries_values(self, ref: str) -> bool:
        """Whether a tensor depends on a feature's values, not only on shapes."""
        return node_of(ref) in self._values

    def is_raw(self, ref: str) -> bool:
        """Whether no embedding table and no layer stands between the features and a tensor."""
        return node_of(ref) in self._raw
