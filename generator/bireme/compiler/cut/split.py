"""Pass 7, split: the embedding frontier. Here is decided what runs on the CPU and what in the dense network.

Walking back from the outputs, a tensor that the feature plan can compute natively (`lower.py`) is a cut: it
becomes columns of `user` or `items`, depending on whose feature it is made of. Everything nearer to the
outputs is dense. A tensor that is neither (a string op that no rule knows, raw ids that reach the dense side)
stops the build, naming the op: nothing is dropped, nothing approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bireme.compiler.composites import Composite
from bireme.compiler.cut.blocks import Block, as_block, block_key, block_shape, width_of
from bireme.compiler.cut.boundary import Boundary, dense_side
from bireme.compiler.cut.lineage import Lineage
from bireme.compiler.cut.refusal import cannot_cross, half_precision, not_served, unfit
from bireme.compiler.cut.regions import can_cross, needs_cpu
from bireme.compiler.cut.subgraphs import Subgraphs
from bireme.compiler.graph import Graph, Node, tf
from bireme.compiler.rules.id_steps import make_step
from bireme.compiler.rules.lower import Lowering
from bireme.compiler.rules.sparse import check_sides
from bireme.compiler.rules.values import (
    Ids,
    Masked,
    Raw,
    Rows,
    Source,
    Text,
    Value,
    features_of,
    plan_mask,
    raw_feature,
    value_feature,
)
from bireme.compiler.shapes import tensor_specs
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
        self.on_cpu = needs_cpu(graph, lowering, lowering.lineage, lowering.specs, forced)
        self.subgraphs = Subgraphs(
            graph, lowering, lowering.lineage, lowering.specs, dict(sides), self._id_step, composites
        )
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ids: dict[tuple[Any, ...], str] = {}
        self.id_steps: list[p.Step] = []
        self.blocks: list[p.Step] = []
        self.tables: dict[str, p.Table] = {}
        self.arena_rows: dict[str, int] = {}
        self.vocabularies: dict[str, VocabularySource | StringsSource] = {}
        self.boundaries: dict[str, Boundary] = {}
        self.crossed: dict[tuple[Any, ...], Boundary] = {}
        self.widths: dict[p.Side, int] = {"user": 0, "item": 0}
        self.seen: set[str] = set()

    def walk(self, output: str, task: str) -> None:
        """Walk back from an output until the cut, depth first: that is the order of the columns."""
        pending: list[tuple[str, Node | None]] = [(output, None)]
        while pending:
            ref, reader = pending.pop()
            if ref in self.boundaries or ref in self.seen or self.graph.constant(ref) is not None:
                continue
            node, value = self.graph.producer(ref), self.low.lower(ref)
            block = as_block(value, self.low.lengths)
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
        if isinstance(value, Rows) and value.pool is None and value.mask is None:
            if value.ids.kind == "computed":
                raise _NotALookup(node.name)
            raise unfit(value, reader, task)
        unfixed = value is not None and "L" in value.shape and value_feature(value) not in self.low.lengths
        if isinstance(value, (Raw, Ids)) or unfixed or not node.inputs:
            raise unfit(value, reader, task) if value is not None else not_served(node)
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
        known = self.seen | set(self.boundaries)
        return {
            name: columns
            for name, columns in self.shapes.items()
            if self.graph.nodes[name].inputs[0] not in known
        }

    def _add_block(self, ref: str, block: Block) -> None:
        """The value as columns; equal values, whatever dimensions of size 1 they have, share theirs."""
        self._register(block)
        key = (block_key(block), width_of(block_shape(block, self.low.lengths)))
        known = self.crossed.get(key)
        if known is not None:
            shape = block_shape(block, self.low.lengths)
            self._add_boundary(ref, known.side, shape, known.made_of, known.offset)
            return
        features = features_of(block)
        # What is made of both sides is item side; it is named after the first feature of its side.
        feature = next((name for name in features if self.sides[name] == "item"), features[0])
        side, shape = self.sides[feature], block_shape(block, self.low.lengths)
        width = width_of(shape)
        offset = self.widths[side]
        name = f"{feature}.{len(self.blocks)}"
        if isinstance(block, Rows):
            check_sides(block, self.sides)
            mask = self._plan_mask(block.mask) if block.mask is not None else None
            pool: Any = block.pool
            step: p.Step = p.Embed(
                name,
                self._id_step(block.ids),
                self._table(block),
                side,
                offset,
                width,
                pool,
                mask,
                block.floor,
                block.weights,
                block.fill,
                block.present,
            )
            made_of = f"{' × '.join(features)} → {self.tables[block.variable].name}"
            made_of += f", {pool}" if pool else ""
        elif isinstance(block, Masked):
            step = p.Admitted(name, self._plan_mask(block), side, offset, width)
            made_of = f"{feature} ≠ {block.value!r}"
        else:
            source = feature if block.source is None else self._source(block.source)
            step = p.Numeric(name, source, block.chain, side, offset, width)
            made_of = " → ".join([" × ".join(features), *(operation for operation, _ in block.chain)])
        self.blocks.append(step)
        self.crossed[key] = self._add_boundary(ref, side, shape, made_of)

    def _register(self, block: Block) -> None:
        """Computed ids get their side when they are first met."""
        ids = block.ids if isinstance(block, Rows) else block.source
        if isinstance(ids, Ids) and ids.kind == "computed":
            self.sides[ids.feature] = self.subgraphs.side(ids.parameters[0])

    def _add_computed(self, ref: str, node: Node) -> None:
        spec = self.specs.get(ref)
        if not can_cross(spec):
            features = self.lineage.features([ref])
            raise cannot_cross(node, spec, features, [f for f in features if self._any_length(f)])
        assert spec is not None
        shape = tuple(int(size or 0) for size in (spec.shape or ())[1:])
        side, width = self.subgraphs.side(ref), width_of(shape)
        self.subgraphs.columns(ref, self.widths[side], width)
        self._add_boundary(ref, side, shape, f"{self.subgraphs.about(ref)} → {node.op} (node '{node.name}')")

    def _any_length(self, feature: str) -> bool:
        value = self.low.lower(f"{self.graph.features[feature]}:0")
        return isinstance(value, Raw) and value.sequence and feature not in self.low.lengths

    def _add_boundary(
        self, ref: str, side: p.Side, shape: tuple[int, ...], made_of: str, offset: int | None = None
    ) -> Boundary:
        """Let a tensor cross as new columns, or as those at `offset`, which hold the same."""
        placeholder = f"cut_{len(self.boundaries)}"
        while placeholder in self.graph.nodes or placeholder in self.graph.outputs:
            placeholder += "_"
        width = width_of(shape)
        if offset is None:
            offset = self.widths[side]
            self.widths[side] += width
        truth = self.specs[ref].dtype == "bool"
        boundary = Boundary(placeholder, ref, side, offset, width, shape, made_of, truth)
        self.boundaries[ref] = boundary
        return boundary

    def _plan_mask(self, mask: Masked) -> p.Mask:
        part: Masked | None = mask
        while part is not None:
            if not isinstance(part.source, Raw):
                self._id_step(part.source)
            part = part.also
        return plan_mask(mask, self.ids)

    def _source(self, source: Source) -> str:
        """Name of a feature, or of the step that makes a source."""
        feature = raw_feature(source)
        return feature if feature is not None else self._id_step(source)

    def _id_step(self, value: Source) -> str:
        """Name of the step that makes ids or strings; made on first use, shared after."""
        assert not isinstance(value, Raw)
        if value.key in self.ids:
            return self.ids[value.key]
        sources = [self._source(source) for source in value.sources] or [value.feature]
        kind = str(value.parameters[0]) if value.kind in ("text", "measure", "compute") else value.kind
        name = f"{value.feature}.{kind}"
        # A mask may name a feature where it could name a step, so no step has the name of a feature.
        while name in self.ids.values() or name in self.sides:
            name = f"{name}.{len(self.ids)}"
        self.ids[value.key] = name
        if value.kind == "computed":
            self.subgraphs.ids(value.parameters[0], name)
            return name
        self.id_steps.append(make_step(name, value, sources, self._vocabulary))
        return name

    def _vocabulary(self, value: Ids | Text) -> str:
        source: VocabularySource | StringsSource
        if isinstance(value, Text):
            source = StringsSource(value.parameters)
        else:
            assert value.table is not None
            source = VocabularySource(value.kind, value.table, value.overrides, value.parameters[1])
        for file, known in self.vocabularies.items():
            if known.content == source.content:
                return file
        file = f"vocabulary_{len(self.vocabularies)}.bin"
        self.vocabularies[file] = source
        return file

    def _table(self, block: Rows) -> str:
        if block.variable not in self.tables:
            variable = self._variable(block.variable)
            name = variable.name.removesuffix(":0")
            if variable.dtype != tf.float32:
                raise CompileError(
                    f"embedding table '{name}'",
                    f"holds {variable.dtype.name}; this version serves float32 tables",
                    "cast it before exporting",
                )
            if 0 in variable.shape:
                raise CompileError(
                    f"embedding table '{name}'",
                    f"is empty: shape {variable.shape}",
                    "leave it out of the model",
                )
            arena = f"arena_float32_w{block.width}.bin"
            first = self.arena_rows.get(arena, 0)
            rows = int(variable.shape[0])
            self.arena_rows[arena] = first + rows
            taken = {table.name for table in self.tables.values()}
            name = name if name not in taken else f"{name}.{len(taken)}"
            self.tables[block.variable] = p.Table(name, arena, "float32", block.width, first, rows)
        return self.tables[block.variable].name

    def _variable(self, name: str) -> Any:
        """The table that `Rows.variable` names."""
        joined = self.low.joined.get(name)
        return joined if joined is not None else self.graph.captures[name].variable

    def finish(self) -> Split:
        subgraphs, files, reasons = self.subgraphs.finish()
        return Split(
            steps=(*self.id_steps, *subgraphs, *self.blocks),
            tables=tuple(self.tables.values()),
            variables={table.name: self._variable(name) for name, table in self.tables.items()},
            vocabularies=self.vocabularies,
            boundaries=tuple(self.boundaries.values()),
            dense=dense_side(self.graph, list(self.boundaries.values()), self._shapes_to_spell_out()),
            user_width=self.widths["user"],
            item_width=self.widths["item"],
            subgraphs=files,
            reasons=reasons,
        )
