"""Embedding tables that a model holds in several variables, seen as one.

TensorFlow looks a partitioned variable up by dealing the ids out to its shards (`DynamicPartition`),
gathering in each, and putting the rows back in order (`DynamicStitch`). Which row of which shard an id means
is not read off the ops but computed, for every id that the table has: the two ways that TensorFlow deals rows
out ("div": each shard a stretch of rows, "mod": row i in shard i mod k) are then recognised whatever ops they
are made of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.compiler.check import as_function
from bireme.compiler.cut.reads import GATHERS
from bireme.compiler.graph import Graph, Node, node_of, tf
from bireme.compiler.rules.sparse import Aside
from bireme.compiler.rules.values import Ids, Rows, Value, as_ids

if TYPE_CHECKING:
    from bireme.compiler.rules.lower import Lowering

__all__ = ["PARTITION_RULES", "Shards"]

Array = np.ndarray[Any, Any]
_ELEMENTWISE = {
    "Add", "AddV2", "Cast", "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Less", "LessEqual", "Maximum",
    "Minimum", "Mod", "Mul", "Select", "SelectV2", "Sub", "TruncateDiv", "TruncateMod",
}  # fmt: skip
#: Ids that are dealt out at a time.
_CHUNK = 1 << 20


class Shards:
    """One table in several variables; it has what the compiler asks of a variable.

    Args:
        parts: tf.Variables [rows, width] of one width and dtype.
        strategy: "div" or "mod", see above.
    """

    def __init__(self, parts: Sequence[Any], strategy: str) -> None:
        self.parts = parts
        self.strategy = strategy
        self.dtype = parts[0].dtype
        self.shape = tf.TensorShape([sum(int(part.shape[0]) for part in parts), *parts[0].shape[1:]])
        self.name = re.sub(r"/part_\d+$", "", parts[0].name.removesuffix(":0"))

    def read(self, first: int, last: int) -> Array:
        """Rows [first, last) of the whole table, copied."""
        ids = np.arange(first, last)
        shards, rows = deal(self.strategy, ids, [int(part.shape[0]) for part in self.parts])
        result = np.empty((len(ids), *self.shape[1:]), dtype=self.dtype.as_numpy_dtype)
        for number, part in enumerate(self.parts):
            mine = np.flatnonzero(shards == number)
            if mine.size:
                result[mine] = tf.gather(part.read_value(), rows[mine]).numpy()
        return result


def deal(strategy: str, ids: Array, sizes: Sequence[int]) -> tuple[Array, Array]:
    """The shard of each id, and its row there.

    Args:
        strategy: "div" or "mod".
        ids: int64 ids within the table.
        sizes: rows of each shard.
    """
    if strategy == "mod":
        return ids % len(sizes), ids // len(sizes)
    ends = np.cumsum(sizes)
    shards = np.searchsorted(ends, ids, side="right")
    return shards, ids - (ends - sizes)[shards]


def _stitched(low: Lowering, node: Node) -> Value | Aside | None:
    """Rows of all shards, put back in the order of the ids."""
    count = len(node.inputs) // 2
    gathers = [low.graph.producer(ref) for ref in node.inputs[count:]]
    if any(gather.name not in low.tables for gather in gathers):
        return None
    local = [gather.inputs[GATHERS[gather.op][1]] for gather in gathers]
    dealt, order = _partition(low.graph, local), _partition(low.graph, node.inputs[:count])
    if dealt is None or order is None or dealt.inputs[1] != order.inputs[1]:
        return None
    source = _common_source(low.graph, dealt.inputs)
    ids = as_ids(low.lower(source)) if source is not None else None
    if source is None or ids is None or not _counts_up(low.graph, order.inputs[0], source):
        return None
    key = "+".join(low.tables[gather.name] for gather in gathers)
    if key not in low.joined:
        parts = [low.graph.captures[low.tables[gather.name]].variable for gather in gathers]
        strategy = _strategy(low.graph, source, dealt.inputs, parts)
        if strategy is None:
            return None
        low.joined[key] = Shards(parts, strategy)
    return _rows(ids, key, low.joined[key])


def _rows(ids: Ids, key: str, table: Any) -> Rows:
    width = int(table.shape[1])
    return Rows(ids, key, width, (*ids.shape, width))


def _partition(graph: Graph, refs: Sequence[str]) -> Node | None:
    """The `DynamicPartition` whose outputs these are, in order."""
    node = graph.producer(refs[0])
    wanted = [f"{node.name}:{index}" for index in range(len(refs))]
    return node if node.op == "DynamicPartition" and list(refs) == wanted else None


def _counts_up(graph: Graph, ref: str, ids: str) -> bool:
    """Whether a tensor is 0, 1, 2, … as far as there are ids."""
    node = graph.producer(ref)
    if node.op == "Cast":
        node = graph.producer(node.inputs[0])
    if node.op != "Range":
        return False
    start, step = graph.constant(node.inputs[0]), graph.constant(node.inputs[2])
    size = graph.producer(node.inputs[1])
    return start == 0 and step == 1 and size.op == "Size" and size.inputs[0] == ids


def _common_source(graph: Graph, refs: Sequence[str]) -> str | None:
    """The nearest tensor that all of `refs` are computed from, element by element, and from nothing else."""
    order = {name: index for index, name in enumerate(graph.nodes)}
    near: dict[str, str] = {}
    pending = list(refs)
    while pending:
        ref = pending.pop()
        node = graph.producer(ref)
        if ref not in near and node.value is None:
            near[ref] = node.name
            pending += node.inputs if node.op in _ELEMENTWISE else []
    for candidate in sorted(near, key=lambda ref: -order[near[ref]]):
        if candidate not in refs and _leads_to(graph, refs, candidate):
            return candidate
    return None


def _leads_to(graph: Graph, refs: Sequence[str], source: str) -> bool:
    """Whether every way back from `refs` over elementwise ops ends in `source` or a constant."""
    pending = list(refs)
    while pending:
        ref = pending.pop()
        node = graph.producer(ref)
        if ref == source or node.value is not None:
            continue
        if node.op not in _ELEMENTWISE:
            return False
        pending += node.inputs
    return True


def _strategy(graph: Graph, source: str, dealt: Sequence[str], parts: Sequence[Any]) -> str | None:
    """How ids become rows of shards, found by dealing out all of them."""
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or len({part.dtype for part in parts}) != 1:
        return None
    consumer = next(n for n in graph.nodes.values() if source in n.inputs and n.op in _ELEMENTWISE)
    dtype = consumer.attr["SrcT" if consumer.op == "Cast" else "T"]
    part = Graph(dict(graph.nodes), {}, {}, {})
    part.nodes[node_of(source)] = Node(node_of(source), "Placeholder", [], {"dtype": dtype})
    part = part.keep(part.ancestors(dealt))
    part.features, part.outputs = {"ids": node_of(source)}, {}
    run = as_function(part, {"row": dealt[0], "shard": dealt[1]})
    sizes = [int(variable.shape[0]) for variable in parts]
    left = {"div", "mod"} if len(sizes) > 1 else {"div"}
    for first in range(0, sum(sizes), _CHUNK):
        ids = np.arange(first, min(first + _CHUNK, sum(sizes)))
        found = run({"ids": ids})
        left = {strategy for strategy in left if _agrees(deal(strategy, ids, sizes), found)}
    return min(left, default=None)


def _agrees(wanted: tuple[Array, Array], found: dict[str, Array]) -> bool:
    return bool((wanted[0] == found["shard"]).all() and (wanted[1] == found["row"]).all())


PARTITION_RULES: dict[str, tuple[Any, ...]] = {
    "ParallelDynamicStitch": (_stitched,),
    "DynamicStitch": (_stitched,),
}
