"""Pieces of the original model for the CPU side's other engines: ONNX Runtime where it can, else TensorFlow.

`split` asks for tensors, as ids or as columns; `finish` gathers them into at most one piece for an engine and
side, each with its file. A piece starts at raw features, or at ids that the feature plan makes of strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from bireme.compiler.composites import Composite
from bireme.compiler.cut.laid_out import lay_out
from bireme.compiler.cut.lineage import Lineage
from bireme.compiler.cut.piece import as_onnx, as_tensorflow, check_rows, tensorflow_only
from bireme.compiler.graph import Graph, Node, node_of, tf
from bireme.compiler.rules.lower import Lowering
from bireme.compiler.rules.values import Ids, Raw, Rows, Value, raw_feature, value_feature
from bireme.compiler.shapes import TensorSpec
from bireme.errors import CompileError
from bireme_runtime import plan as p
from bireme_runtime.pieces import SubgraphInput, SubgraphOutput

__all__ = ["Subgraphs"]

Engine = Literal["onnx", "tensorflow"]


@dataclass(frozen=True)
class _Wanted:
    output: SubgraphOutput
    ref: str
    side: p.Side


class Subgraphs:
    """The pieces of one model.

    Args:
        graph: the folded graph.
        low: what the feature plan computes natively.
        lineage: where tensors come from.
        specs: dtype and shape of every tensor.
        sides: feature → side.
        id_step: gives the name of the plan step that makes some ids.
        composites: sparse and ragged inputs.
    """

    def __init__(
        self,
        graph: Graph,
        low: Lowering,
        lineage: Lineage,
        specs: Mapping[str, TensorSpec],
        sides: Mapping[str, p.Side],
        id_step: Callable[[Ids], str],
        composites: Mapping[str, Composite],
    ) -> None:
        self._graph = graph
        self._low = low
        self._lineage = lineage
        self._specs = specs
        self._sides = sides
        self._id_step = id_step
        self._owner = {part: composite for composite in composites.values() for part in composite.parts}
        self._part = {graph.features[part]: c for part, c in self._owner.items() if part in graph.features}
        self._wanted: dict[tuple[str, bool], _Wanted] = {}

    def side(self, ref: str) -> p.Side:
        """Of a tensor: a user's if it is made of user features only."""
        item = any(self._sides[feature] == "item" for feature in self._features(ref))
        return "item" if item else "user"

    def about(self, ref: str) -> str:
        """The features that a tensor is made of, for errors and the report."""
        return ", ".join(self._features(ref))

    def _features(self, ref: str) -> list[str]:
        names = self._lineage.features([ref])
        return list(dict.fromkeys(self._owner[n].name if n in self._owner else n for n in names))

    def ids(self, ref: str, name: str) -> None:
        """Ask for a tensor as ids under a name."""
        self._ask(ref, SubgraphOutput(ref, name, self.about(ref)))

    def columns(self, ref: str, offset: int, width: int) -> None:
        """Ask for a tensor as columns of its side."""
        self._ask(ref, SubgraphOutput(ref, "", self.about(ref), offset, width))

    def _ask(self, ref: str, output: SubgraphOutput) -> None:
        self._wanted.setdefault((ref, bool(output.width)), _Wanted(output, ref, self.side(ref)))

    def finish(self) -> tuple[list[p.Subgraph], dict[str, Callable[[Path], None]], dict[str, str]]:
        """The steps, their files, and step → why it needs an engine of its own.

        Raises:
            CompileError: a piece mixes rows, or not even TensorFlow can run it apart from the model.
        """
        groups: dict[tuple[Engine, p.Side], list[_Wanted]] = {}
        reasons: dict[str, str] = {}
        for wanted in self._wanted.values():
            piece, inputs = self._piece([wanted.ref])
            rows_of = {source.tensor: source.rows for source in inputs}
            check_rows(piece, rows_of)
            why = tensorflow_only(piece, self._specs)
            whole = {composite.name for composite in self._part.values()}
            if not why and any(source.source in whole for source in inputs):
                # As ONNX, sums over the elements of a row fail where no row has any (seen with tf2onnx 1.17).
                why = f"the sparse or ragged input '{next(s.source for s in inputs if s.source in whole)}'"
            if not why:
                why = as_onnx(piece, rows_of)[1]
            engine: Engine = "tensorflow" if why else "onnx"
            groups.setdefault((engine, wanted.side), []).append(wanted)
            node = self._graph.producer(wanted.ref)
            reasons.setdefault(f"{engine}_{wanted.side}", why or f"{node.op} (node '{node.name}')")
        steps = []
        files: dict[str, Callable[[Path], None]] = {}
        for (engine, side), members in groups.items():
            step, blob = self._step(engine, side, members)
            steps.append(step)
            files[step.file] = partial(_write, blob)
        return steps, files, reasons

    def _step(self, engine: Engine, side: p.Side, members: list[_Wanted]) -> tuple[p.Subgraph, bytes]:
        piece, inputs = self._piece([wanted.ref for wanted in members])
        outputs = [wanted.output for wanted in members]
        tables: tuple[tuple[str, str, str], ...] = ()
        if engine == "onnx":
            model, why = as_onnx(piece, {source.tensor: source.rows for source in inputs})
            if model is None:
                raise CompileError("pass split", f"cannot join pieces for ONNX Runtime: {why}", "report it")
            names = {ref: name for name, ref in piece.outputs.items()}
            outputs = [replace(output, tensor=names[output.tensor]) for output in outputs]
            blob = model.SerializeToString(deterministic=True)
        else:
            graph_def, tables = as_tensorflow(piece)
            blob = graph_def.SerializeToString(deterministic=True)
        name = f"{engine}_{side}"
        file = f"{name}.onnx" if engine == "onnx" else f"{name}.graph.pb"
        return p.Subgraph(name, engine, file, side, tuple(inputs), tuple(outputs), tables), blob

    def _piece(self, refs: list[str]) -> tuple[Graph, list[SubgraphInput]]:
        """The part of the graph between features (or native ids) and `refs`."""
        graph = self._graph.copy()
        inputs: dict[str, SubgraphInput] = {}
        features: dict[str, str] = {}
        indexed: dict[str, int] = {}
        stack, seen = list(refs), set[str]()
        while stack:
            ref = stack.pop()
            if ref in seen or graph.constant(ref) is not None:
                continue
            seen.add(ref)
            node = self._graph.producer(ref)
            value = self._low.lower(ref)
            source = self._source(ref, value) if ref not in refs else None
            if isinstance(value, Rows):
                feature = raw_feature(value.ids)
                rows = int(self._low.table(value.variable).shape[0])
                if feature is not None:
                    indexed[feature] = min(rows, indexed.get(feature, rows))
            if isinstance(value, Raw) and node.op == "Placeholder":
                rank = len(self._specs[ref].shape or ())
                inputs[node.name] = SubgraphInput(node.name, value.feature, rank)
                features[node.name] = node.name
            elif source is not None:
                placeholder = self._ids_placeholder(graph, ref, source)
                inputs[placeholder] = SubgraphInput(placeholder, self._id_step(source), len(source.shape))
                features[placeholder] = placeholder
            elif node.name in self._part:
                placeholder = lay_out(graph, self._part[node.name])
                inputs[placeholder] = SubgraphInput(placeholder, self._part[node.name].name, 2)
                features[placeholder] = placeholder
                seen |= {f"{name}:0" for name, whole in self._part.items() if whole is self._part[node.name]}
            else:
                stack.extend(node.inputs)
        graph.features = features
        graph.outputs = {f"out_{index}": ref for index, ref in enumerate(dict.fromkeys(refs))}
        graph = graph.keep(graph.ancestors(graph.outputs.values()))
        graph.sort()
        sources = [inputs[name] for name in graph.features]
        return graph, [replace(source, rows=indexed.get(source.source, 0)) for source in sources]

    def _source(self, ref: str, value: Value | None) -> Ids | None:
        """Ids that the feature plan makes of strings: better than to hash them in TensorFlow."""
        if not isinstance(value, Ids) or value.kind in ("computed", "identity") or ref not in self._specs:
            return None
        if len(value.shape) > 2 or self._specs[ref].dtype not in ("int32", "int64"):
            return None
        if value.shape[0] != "R" or any(dim not in ("L", 1) for dim in value.shape[1:]):
            return None  # elements of a sparse tensor, end to end
        return value

    def _ids_placeholder(self, graph: Graph, ref: str, ids: Ids) -> str:
        name = f"ids/{node_of(ref)}"
        wanted = self._specs[ref]
        length = self._low.lengths.get(value_feature(ids))
        dims = [None, *(length if dim == "L" else dim for dim in ids.shape[1:])]
        shape = tf.TensorShape(dims).as_proto()
        attr = tf.compat.v1.AttrValue
        int64 = tf.int64.as_datatype_enum
        graph.nodes[name] = Node(
            name, "Placeholder", [], {"dtype": attr(type=int64), "shape": attr(shape=shape)}
        )
        source = f"{name}:0"
        if wanted.dtype != "int64":
            cast = Node(
                f"{name}/cast",
                "Cast",
                [source],
                {
                    "SrcT": attr(type=int64),
                    "DstT": attr(type=tf.as_dtype(wanted.dtype).as_datatype_enum),
                },
            )
            graph.nodes[cast.name] = cast
            source = cast.output
        graph.redirect(ref, source)
        return name


def _write(blob: bytes, path: Path) -> None:
    path.write_bytes(blob)
