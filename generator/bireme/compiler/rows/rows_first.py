"""Still row-wise, but with the rows in front: what stands between tf2onnx and a readable dense network.

TensorFlow's code moves rows about and back: it flattens [rows, L, D] to [rows·L, D] for a product, computes
recurrent layers time-major, stacks attention heads in front of the rows, and asks for the number of rows
where it only wants to keep them. This step rewrites every such detour as ops on [rows, …], computes
constants, and replaces computed shapes by numbers. It changes no value for any number of rows; that rows
stay apart is proved later, by user_once, on what comes out. A detour that never comes back is left as it
is, to be refused by name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import onnx

from bireme.compiler.rows.canonical import canonicalise
from bireme.compiler.rows.row_bench import Bench, attributes_of
from bireme.compiler.rows.row_dims import Dim, Rows, Sizes, evaluate, sizes_of
from bireme.compiler.rows.row_picks import gather_picks, picks_of
from bireme.compiler.rows.row_view import NoViewError, View
from bireme.compiler.rows.row_view_math import VIEWS

__all__ = ["rows_first"]


def rows_first(rowwise: onnx.ModelProto, user: Collection[str]) -> onnx.ModelProto:
    """Rewrite a row-wise network.

    Args:
        rowwise: from `dense.to_onnx`; dim 0 of every input and output is the row.
        user: its inputs that depend on user features only: a constant that has to be repeated for every row
            takes its size from one of them, so that it costs nothing per candidate.

    Returns:
        The same network for any number of rows ≥ 1; each node's `doc_string` still names its origin.
    """
    inputs = [value.name for value in rowwise.graph.input]
    walk = _Walk(rowwise, next((name for name in inputs if name in user), inputs[0]))
    for node in rowwise.graph.node:
        walk.node(node)
    return walk.model()


class _Walk:
    def __init__(self, rowwise: onnx.ModelProto, anchor: str) -> None:
        self.rowwise = rowwise
        self.bench = Bench(anchor)
        for weight in rowwise.graph.initializer:
            self.bench.constants[weight.name] = onnx.numpy_helper.to_array(weight)
        for value in rowwise.graph.input:
            kind = value.type.tensor_type
            sizes = [d.dim_value or None for d in kind.shape.dim[1:]]
            self.bench.know(value.name, kind.elem_type, [Rows(), *sizes])
            self._as_it_is(value.name)

    def _as_it_is(self, name: str) -> None:
        """A tensor with its rows in front is its own base."""
        shape = self.bench.shape(name)
        if shape and shape[0] == Rows() and all(isinstance(size, int) for size in shape[1:]):
            rest = tuple(size for size in shape[1:] if isinstance(size, int))
            self.bench.views[name] = View(name, (), 1, 1, rest)

    def node(self, node: onnx.NodeProto) -> None:
        """Carry one op over."""
        bench = self.bench
        bench.origin = node.doc_string or node.name
        if node.op_type == "Sum" and len(node.input) > 1:
            for step in _as_additions(bench, node):
                self.node(step)
            return
        attributes = attributes_of(node)
        if node.op_type == "Constant" and "value" in attributes:
            bench.constants[node.output[0]] = onnx.numpy_helper.to_array(attributes["value"])
            return
        constants = bench.compute(node)
        if constants is not None:
            bench.constants.update(zip(node.output, constants, strict=True))
            return
        if self._size(node, attributes):
            return
        picks = picks_of(bench, node)
        if picks is not None:
            bench.picks[node.output[0]] = picks
            self._copy(node, known=False)
            return
        picked = node.op_type == "Gather" and node.input[1] in bench.picks
        handler = gather_picks if picked else VIEWS.get(node.op_type)
        views = None
        if handler is not None:
            try:
                views = handler(bench, node)
            except NoViewError:
                views = None
        if views is None:
            self._copy(node)
            return
        for name, view in zip(node.output, views, strict=True):
            bench.views[name] = view
        if not all(view.plain for view in views):
            self._copy(node, known=False)

    def _size(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> bool:
        """Whether a node computes sizes, which are followed and not computed."""
        bench = self.bench
        asked = node.op_type in ("Shape", "Size")
        if not asked and not any(name in bench.sizes for name in node.input):
            return False
        shape: list[Dim] | None = bench.shape(node.input[0]) if asked else None
        made = evaluate(node, [self._sizes(name) for name in node.input], attributes, shape)
        if made is None:
            return False
        numbers = made.static()
        if numbers is not None:
            bench.constants[node.output[0]] = numbers
        else:
            bench.sizes[node.output[0]] = made
            self._copy(node, known=False)
        return True

    def _sizes(self, name: str) -> Sizes | None:
        return self.bench.sizes.get(name) or sizes_of(self.bench.constants.get(name))

    def _copy(self, node: onnx.NodeProto, known: bool = True) -> None:
        """The node as it is, on bases where they are the tensors themselves.

        Args:
            node: the node.
            known: its outputs are not known otherwise.
        """
        bench = self.bench
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = bench.origin
        del copy.input[:]
        for name in node.input:
            view = bench.views.get(name)
            copy.input.append(bench.row_by_row(view.base) if view is not None and view.plain else name)
        if known:
            bench.append(copy)
            for name in node.output:
                self._as_it_is(name)
        else:
            bench.nodes.append(copy)

    def model(self) -> onnx.ModelProto:
        """The new network, with what its outputs need."""
        bench = self.bench
        bench.origin = ""
        made = {name for node in bench.nodes for name in node.output}
        for output in self.rowwise.graph.output:
            if output.name not in made:
                view = bench.views.get(output.name)
                base = bench.row_by_row(view.base) if view is not None else output.name
                bench.nodes.append(onnx.helper.make_node("Identity", [base], [output.name]))
        weights = [onnx.numpy_helper.from_array(value, name) for name, value in bench.constants.items()]
        graph = onnx.helper.make_graph(
            bench.nodes, "dense", self.rowwise.graph.input, self.rowwise.graph.output, weights
        )
        model = onnx.ModelProto()
        model.CopyFrom(self.rowwise)
        model.graph.CopyFrom(graph)
        canonicalise(model, keep_origin=True)
        return model


def _as_additions(bench: Bench, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A sum of many as additions, in their order, which the algebra of user_once knows."""
    total, steps = node.input[0], []
    for index, other in enumerate(node.input[1:], start=2):
        made = node.output[0] if index == len(node.input) else bench.fresh()
        steps.append(
            onnx.helper.make_node("Add", [total, other], [made], name=bench.origin, doc_string=bench.origin)
        )
        total = made
    return steps
