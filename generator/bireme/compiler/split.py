"""Pass 6, split: the embedding frontier. Here is decided what runs on the CPU and what in the dense network.

Walking back from the outputs, a tensor that the feature plan can compute natively (`lower.py`) is a cut: it
becomes columns of `user` or `items`, depending on whose feature it is made of. Everything nearer to the
outputs is dense. A tensor that is neither (a string op that no rule knows, raw ids that reach the dense side)
stops the build, naming the op: nothing is dropped, nothing approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.compiler.fold import GATHERS
from bireme.compiler.graph import Graph, Node, tf
from bireme.compiler.id_steps import make_step
from bireme.compiler.lower import Lowering
from bireme.compiler.refusal import (
    computed_table,
    culprit,
    half_precision,
    not_a_transform,
    runs_on_cpu_only,
    unfit,
)
from bireme.compiler.sparse import check_sides
from bireme.compiler.values import (
    Ids,
    Numbers,
    Raw,
    Rows,
    Source,
    Text,
    features_of,
    numbers,
    plan_mask,
    raw_feature,
)
from bireme.compiler.vocabularies import StringsSource, VocabularySource
from bireme.errors import CompileError
from bireme_runtime import plan as p

__all__ = ["Boundary", "Split", "split"]


@dataclass(frozen=True)
class Boundary:
    """One tensor that crosses the cut: columns [offset, offset + width) of `user` or `items`.

    Args:
        name: placeholder of the dense graph.
        tensor: the tensor it replaces.
        shape: its static shape behind the row dimension.
    """

    name: str
    tensor: str
    side: p.Side
    offset: int
    width: int
    shape: tuple[int, ...]
    made_of: str


@dataclass(frozen=True)
class Split:
    """Both banks: steps for the CPU, a graph for the GPU, and what crosses between them."""

    steps: tuple[p.Step, ...]
    tables: tuple[p.Table, ...]
    variables: dict[str, Any]
    vocabularies: dict[str, VocabularySource | StringsSource]
    boundaries: tuple[Boundary, ...]
    dense: Graph
    user_width: int
    item_width: int


def split(graph: Graph, shapes: dict[str, Any], sides: dict[str, p.Side]) -> Split:
    """Cut the folded graph at the embedding frontier.

    Args:
        graph: the graph after folding.
        shapes: see `Lowering`.
        sides: feature → "user" or "item".

    Raises:
        CompileError: an op on the CPU side is not a known transform, or a table has an unsupported dtype.
    """
    cut = _Cut(graph, Lowering(graph, shapes), sides)
    for task, ref in graph.outputs.items():
        if graph.constant(ref) is not None:
            raise CompileError(
                f"output '{task}'", "is the same for every request", "leave it out of `outputs` in the spec"
            )
        cut.walk(ref, task)
    return cut.finish()


class _Cut:
    def __init__(self, graph: Graph, lowering: Lowering, sides: dict[str, p.Side]) -> None:
        self.graph = graph
        self.low = lowering
        self.sides = sides
        self.ids: dict[tuple[Any, ...], str] = {}
        self.id_steps: list[p.Step] = []
        self.blocks: list[p.Step] = []
        self.tables: dict[str, p.Table] = {}
        self.arena_rows: dict[str, int] = {}
        self.vocabularies: dict[str, VocabularySource | StringsSource] = {}
        self.boundaries: dict[str, Boundary] = {}
        self.widths: dict[p.Side, int] = {"user": 0, "item": 0}
        self.seen: set[str] = set()

    def walk(self, output: str, task: str) -> None:
        """Walk back from an output until the cut, depth first: that is the order of the columns."""
        pending: list[tuple[str, Node | None]] = [(output, None)]
        while pending:
            ref, reader = pending.pop()
            if ref in self.boundaries or ref in self.seen or self.graph.constant(ref) is not None:
                continue
            value = self.low.lower(ref)
            block = numbers(value) or (value if isinstance(value, Rows) and _pooled(value) else None)
            if block is not None:
                self._add_boundary(ref, block)
                continue
            if value is not None:
                raise unfit(value, reader, task)
            node = self.graph.producer(ref)
            if node.name in self.low.tables:
                raise not_a_transform(culprit(self.low, node, node.inputs[GATHERS[node.op][1]]))
            if runs_on_cpu_only(node):
                raise not_a_transform(node)
            if node.op in GATHERS and self.graph.constant(node.inputs[GATHERS[node.op][0]]) is not None:
                raise computed_table(node)
            if node.op == "Cast" and node.attr["DstT"].type in (tf.float16, tf.bfloat16):
                raise half_precision(node)
            self.seen.add(ref)
            pending.extend((source, node) for source in reversed(node.inputs))

    def _add_boundary(self, ref: str, block: Rows | Numbers) -> None:
        features = features_of(block)
        # What is made of both sides is item side; it is named after the first feature of its side.
        feature = next((name for name in features if self.sides[name] == "item"), features[0])
        side = self.sides[feature]
        width = block.width if isinstance(block, Rows) else 1
        offset = self.widths[side]
        self.widths[side] += width
        name = f"{feature}.{len(self.blocks)}"
        if isinstance(block, Rows):
            check_sides(block, self.sides)
            mask = plan_mask(block.mask, self._mask_ids(block)) if block.mask is not None else None
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
        else:
            source = feature if block.source is None else self._source(block.source)
            step = p.Numeric(name, source, block.chain, side, offset)
            made_of = " → ".join([" × ".join(features), *(operation for operation, _ in block.chain)])
        self.blocks.append(step)
        static = tuple(int(d) for d in block.shape[1:])
        placeholder = f"cut_{len(self.boundaries)}"
        while placeholder in self.graph.nodes or placeholder in self.graph.outputs:
            placeholder += "_"
        self.boundaries[ref] = Boundary(placeholder, ref, side, offset, width, static, made_of)

    def _mask_ids(self, block: Rows) -> dict[tuple[Any, ...], str]:
        mask = block.mask
        while mask is not None:
            if not isinstance(mask.source, Raw):
                self._id_step(mask.source)
            mask = mask.also
        return self.ids

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
        return Split(
            steps=(*self.id_steps, *self.blocks),
            tables=tuple(self.tables.values()),
            variables={table.name: self._variable(name) for name, table in self.tables.items()},
            vocabularies=self.vocabularies,
            boundaries=tuple(self.boundaries.values()),
            dense=_dense(self.graph, list(self.boundaries.values())),
            user_width=self.widths["user"],
            item_width=self.widths["item"],
        )


def _dense(graph: Graph, boundaries: list[Boundary]) -> Graph:
    """The dense side: one float placeholder for each boundary, and what the outputs need from there."""
    dense = graph.copy()
    dense.features = {}
    for boundary in boundaries:
        shape = tf.TensorShape([None, *boundary.shape]).as_proto()
        attr = {
            "dtype": tf.compat.v1.AttrValue(type=tf.float32.as_datatype_enum),
            "shape": tf.compat.v1.AttrValue(shape=shape),
        }
        dense.nodes[boundary.name] = Node(boundary.name, "Placeholder", [], attr)
        dense.redirect(boundary.tensor, f"{boundary.name}:0")
        dense.features[boundary.name] = boundary.name
    dense = dense.keep(dense.ancestors(dense.outputs.values()))
    dense.sort()
    return dense


def _pooled(rows: Rows) -> bool:
    per_row = rows.shape[0] == "R" and all(isinstance(dim, int) for dim in rows.shape[1:])
    return per_row and (rows.pool is not None or "L" not in rows.ids.shape)
