"""Pass 7, split: the embedding frontier. Here is decided what runs on the CPU and what in the dense network.

Walking back from the outputs, a tensor that the feature plan can compute natively (`rules/lower.py`) is a
cut: it becomes columns of `user` or `items`, depending on whose feature it is made of. Everything nearer to
the outputs is dense. What no rule knows and no dense network can take (regions.py) becomes columns, too, made
by a piece of the original graph on another engine (subgraphs.py). A tensor that is none of these (raw ids, or
a sequence of any length, that reach the dense side) stops the build, naming the op: nothing is dropped,
nothing approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bireme.compiler.composites import Composite
from bireme.compiler.cut.block_steps import about, block_step
from bireme.compiler.cut.blocks import Block, as_block, block_key, block_shape, width_of
from bireme.compiler.cut.boundary import Boundary, Columns, dense_side
from bireme.compiler.cut.lineage import Lineage
from bireme.compiler.cut.refusal import cannot_cross, half_precision, not_served, unfit
from bireme.compiler.cut.regions import can_cross, needs_cpu
from bireme.compiler.cut.source_steps import SourceSteps
from bireme.compiler.cut.subgraphs import Subgraphs
from bireme.compiler.graph import Graph, Node, tf
from bireme.compiler.rules.lower import Lowering
from bireme.compiler.rules.sparse import check_sides
from bireme.compiler.rules.values import Count, Ids, Raw, Rows, Value, features_of, value_feature
from bireme.compiler.shapes import tensor_specs
from bireme.compiler.tables.arenas import Arenas
from bireme.compiler.tables.constant_tables import adopt_constant_tables
from bireme.compiler.tables.vocabularies import StringsSource, VocabularySource
from bireme.errors import CompileError
from bireme_runtime import plan as p

__all__ = ["Boundary", "Split", "split"]


@dataclass(frozen=True)
class Split:
    """Both banks: steps for the CPU, a graph for the GPU, and what crosses between them.

    `subgraphs` writes the files of the CPU's other engines; `reasons` says for each of their steps which op
    needs it.
    """

    steps: tuple[p.Step, ...]
    tables: tuple[p.Table, ...]
    variables: dict[str, Any]
    vocabularies: dict[str, VocabularySource | StringsSource]
    boundaries: tuple[Boundary, ...]
    dense: Graph
    user_width: int
    item_width: int
    subgraphs: dict[str, Callable[[Path], None]]
    reasons: dict[str, str]


def split(
    graph: Graph,
    shapes: dict[str, Any],
    sides: dict[str, p.Side],
    forced: Set[str] = frozenset(),
    composites: Mapping[str, Composite] | None = None,
) -> Split:
    """Cut the folded graph at the embedding frontier.

    Args:
        graph: the graph after folding.
        shapes: see `Lowering`.
        sides: feature → "user" or "item".
        forced: nodes that have to stay on the CPU, as no dense network can hold them.
        composites: sparse and ragged inputs.

    Raises:
        CompileError: an op on the CPU side is not a known transform, or a table has an unsupported dtype.
    """
    for task, ref in graph.outputs.items():
        if graph.constant(ref) is not None:
            raise CompileError(
                f"output '{task}'", "is the same for every request", "leave it out of `outputs` in the spec"
            )
    graph = adopt_constant_tables(graph)
    lineage, specs = Lineage(graph), tensor_specs(graph)
    apart: set[str] = set()
    while True:
        cut = _Cut(
            graph, Lowering(graph, shapes, lineage, specs, apart), dict(sides), forced, composites or {}
        )
        try:
            for task, ref in graph.outputs.items():
                cut.walk(ref, task)
            return cut.finish()
        except _NotALookup as found:
            apart.add(found.node)


class _NotALookup(Exception):  # noqa: N818 - not an error: the cut is tried again
    """Rows that cannot cross: their gather has to stay inside a subgraph."""

    def __init__(self, node: str) -> None:
        super().__init__(node)
        self.node = node


class _Cut:
    def __init__(
        self,
        graph: Graph,
        lowering: Lowering,
        sides: dict[str, p.Side],
        forced: Set[str],
        composites: Mapping[str, Composite],
    ) -> None:
        self.graph = graph
        self.low = lowering
        self.specs, self.lineage = lowering.specs, lowering.lineage
        self.sides = sides
        self.on_cpu = needs_cpu(graph, lowering, self.lineage, self.specs, forced)
        self.subgraphs = Subgraphs(
            graph, lowering, self.lineage, self.specs, dict(sides), self._id_step, composites
        )
        self.sources = SourceSteps(sides, self.subgraphs.ids)
        self.arenas = Arenas(lowering.table)
        self.columns = Columns(graph)
        self.blocks: list[p.Step] = []
        #: key of a block → its boundary, for equal ones
        self.crossed: dict[tuple[Any, ...], Boundary] = {}
        #: `Shape` node → the dimensions behind the rows of what it asks for
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.seen: set[str] = set()

    def walk(self, output: str, task: str) -> None:
        """Walk back from an output until the cut, depth first: that is the order of the columns."""
        pending: list[tuple[str, Node | None]] = [(output, None)]
        while pending:
            ref, reader = pending.pop()
            if ref in self.columns.boundaries or ref in self.seen or self.graph.constant(ref) is not None:
                continue
            node, value = self.graph.producer(ref), self.low.lower(ref)
            block = as_block(value, self.low.lengths, self.specs.get(ref))
            if block is not None:
                self._add_block(ref, block)
                continue
            if value is None and node.name in self.on_cpu:
                self._add_computed(ref, node)
                continue
            self._refuse(node, value, reader, task)
            self.seen.add(ref)
            columns = self._only_rows_open(node)
            if columns is not None:
                self.shapes[node.name] = columns
                continue
            pending.extend((source, node) for source in reversed(node.inputs))

    def _refuse(self, node: Node, value: Value | None, reader: Node | None, task: str) -> None:
        """Stop at what can be neither part of the dense network nor columns."""
        if isinstance(value, Rows) and value.pool is None and value.whole:
            if value.ids.kind == "computed":
                raise _NotALookup(node.name)
            raise unfit(value, reader, task)
        unfixed = value is not None and "L" in value.shape and value_feature(value) not in self.low.lengths
        if isinstance(value, (Raw, Ids)) or unfixed or not node.inputs:
            raise unfit(value, reader, task) if value is not None else not_served(node)
        if isinstance(value, Rows) and value.pool is None and node.op in ("OneHot", "Cast"):
            raise _NotALookup(node.name)  # the mask is what a unit matrix has no rows for
        if node.op == "Cast" and node.attr["DstT"].type in (tf.float16, tf.bfloat16):
            raise half_precision(node)

    def _only_rows_open(self, node: Node) -> tuple[int, ...] | None:
        """The dimensions behind the rows, if a node asks for a shape and only the number of rows is open."""
        spec = self.specs.get(node.inputs[0]) if node.op == "Shape" else None
        if spec is None or not spec.shape or None in spec.shape[1:]:
            return None
        return tuple(int(size or 0) for size in spec.shape[1:])

    def _shapes_to_spell_out(self) -> dict[str, tuple[int, ...]]:
        """Of the asked shapes those whose tensors stay behind on the CPU side."""
        known = self.seen | set(self.columns.boundaries)
        return {
            name: columns
            for name, columns in self.shapes.items()
            if self.graph.nodes[name].inputs[0] not in known
        }

    def _add_block(self, ref: str, block: Block) -> None:
        """The value as columns; equal values, whatever dimensions of size 1 they have, share theirs."""
        self._register(block)
        shape = block_shape(block, self.low.lengths)
        width = width_of(shape)
        key = (block_key(block), width)
        known = self.crossed.get(key)
        if known is not None:
            self._cross(ref, known.side, shape, known.made_of, known.offset)
            return
        check_sides(block, self.sides)
        # What is made of both sides is item side; it is named after the first feature of its side.
        features = features_of(block)
        feature = next((name for name in features if self.sides[name] == "item"), features[0])
        side = self.sides[feature]
        name, offset = f"{feature}.{len(self.blocks)}", self.columns.widths[side]
        self.blocks.append(block_step(name, block, side, offset, width, self.sources, self.arenas))
        self.crossed[key] = self._cross(ref, side, shape, about(block, self.arenas))

    def _register(self, block: Block) -> None:
        """Computed ids get their side when they are first met."""
        ids = block.ids if isinstance(block, Rows) else None if isinstance(block, Count) else block.source
        if isinstance(ids, Ids) and ids.kind == "computed":
            self.sides[ids.feature] = self.subgraphs.side(ids.parameters[0])

    def _add_computed(self, ref: str, node: Node) -> None:
        """What an engine on the CPU computes, as columns."""
        spec = self.specs.get(ref)
        if not can_cross(spec):
            features = self.lineage.features([ref])
            raise cannot_cross(node, spec, features, [f for f in features if self._any_length(f)])
        assert spec is not None
        shape = tuple(int(size or 0) for size in (spec.shape or ())[1:])
        side = self.subgraphs.side(ref)
        self.subgraphs.columns(ref, self.columns.widths[side], width_of(shape))
        self._cross(ref, side, shape, f"{self.subgraphs.about(ref)} → {node.op} (node '{node.name}')")

    def _any_length(self, feature: str) -> bool:
        value = self.low.lower(f"{self.graph.features[feature]}:0")
        return isinstance(value, Raw) and value.sequence and feature not in self.low.lengths

    def _cross(
        self, ref: str, side: p.Side, shape: tuple[int, ...], made_of: str, offset: int | None = None
    ) -> Boundary:
        truth = self.specs[ref].dtype == "bool"
        return self.columns.add(ref, side, shape, made_of, truth, offset)

    def _id_step(self, ids: Ids) -> str:
        return self.sources.step(ids)

    def finish(self) -> Split:
        """Both banks, once all outputs have been walked back from."""
        subgraphs, files, reasons = self.subgraphs.finish()
        boundaries = tuple(self.columns.boundaries.values())
        return Split(
            steps=(*self.sources.steps, *subgraphs, *self.blocks),
            tables=self.arenas.tables,
            variables=self.arenas.variables,
            vocabularies=self.sources.vocabularies,
            boundaries=boundaries,
            dense=dense_side(self.graph, boundaries, self._shapes_to_spell_out()),
            user_width=self.columns.widths["user"],
            item_width=self.columns.widths["item"],
            subgraphs=files,
            reasons=reasons,
        )
