"""What crosses from the CPU side to the dense network, and the dense network's graph behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bireme.compiler.cut.blocks import width_of
from bireme.compiler.graph import Graph, Node, tf
from bireme_runtime import plan as p

__all__ = ["Boundary", "Columns", "dense_side"]

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@dataclass(frozen=True)
class Boundary:
    """One tensor that crosses the cut: columns [offset, offset + width) of `user` or `items`.

    Args:
        name: placeholder of the dense graph.
        tensor: the tensor it replaces.
        shape: its static shape behind the row dimension.
        made_of: what it is, for people.
        truth: it is boolean, and crosses as 1 and 0.
    """

    name: str
    tensor: str
    side: p.Side
    offset: int
    width: int
    shape: tuple[int, ...]
    made_of: str
    truth: bool = False


class Columns:
    """The tensors that cross, in order, and where their columns lie.

    Args:
        graph: the whole graph, none of whose names a placeholder of the dense side may have.
    """

    def __init__(self, graph: Graph) -> None:
        self.boundaries: dict[str, Boundary] = {}
        self.widths: dict[p.Side, int] = {"user": 0, "item": 0}
        self._taken = graph.nodes.keys() | graph.outputs.keys()

    def add(
        self,
        ref: str,
        side: p.Side,
        shape: tuple[int, ...],
        made_of: str,
        truth: bool = False,
        offset: int | None = None,
    ) -> Boundary:
        """Let a tensor cross as new columns, or as those at `offset`, which hold the same."""
        placeholder = f"cut_{len(self.boundaries)}"
        while placeholder in self._taken:
            placeholder += "_"
        width = width_of(shape)
        if offset is None:
            offset = self.widths[side]
            self.widths[side] += width
        self.boundaries[ref] = Boundary(placeholder, ref, side, offset, width, shape, made_of, truth)
        return self.boundaries[ref]


def dense_side(graph: Graph, boundaries: Sequence[Boundary], shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """One float placeholder for each boundary, and what the outputs need from there.

    Args:
        graph: the whole graph.
        boundaries: what crosses.
        shapes: `Shape` node whose tensor need not cross → its dimensions behind the rows.
    """
    dense = graph.copy()
    dense.features = {}
    for boundary in boundaries:
        shape = tf.TensorShape([None, *boundary.shape]).as_proto()
        attr = {
            "dtype": tf.compat.v1.AttrValue(type=tf.float32.as_datatype_enum),
            "shape": tf.compat.v1.AttrValue(shape=shape),
        }
        dense.nodes[boundary.name] = Node(boundary.name, "Placeholder", [], attr)
        crossed = _as_truth(dense, boundary.name) if boundary.truth else f"{boundary.name}:0"
        dense.redirect(boundary.tensor, crossed)
        dense.features[boundary.name] = boundary.name
    for name, columns in shapes.items():
        _take_rows_of(dense, name, boundaries[0].name, columns)
    dense = dense.keep(dense.ancestors(dense.outputs.values()))
    dense.sort()
    return dense


def _as_truth(dense: Graph, placeholder: str) -> str:
    """1 and 0 back to booleans."""
    zero = Node(f"{placeholder}/zero", "Const", value=np.zeros((), np.float32))
    attr = {"T": tf.compat.v1.AttrValue(type=tf.float32.as_datatype_enum)}
    truth = Node(f"{placeholder}/truth", "Greater", [f"{placeholder}:0", zero.output], attr)
    dense.nodes |= {zero.name: zero, truth.name: truth}
    return truth.output


def _take_rows_of(dense: Graph, name: str, placeholder: str, columns: tuple[int, ...]) -> None:
    """A shape becomes the number of rows of a boundary, and constants: its tensor may not have crossed."""
    node = dense.nodes[name]
    if all(_takes_rows(dense, reader) for reader in dense.consumers().get(node.output, [])):
        kinds = {"T": tf.compat.v1.AttrValue(type=1), "out_type": node.attr["out_type"]}
        dense.nodes[name] = Node(name, "Shape", [f"{placeholder}:0"], kinds)
        return
    attr = tf.compat.v1.AttrValue
    kind = node.attr["out_type"].type or tf.int32.as_datatype_enum
    dtype = tf.as_dtype(kind).as_numpy_dtype
    rows = Node(f"{name}/of", "Shape", [f"{placeholder}:0"], {"T": attr(type=1), "out_type": attr(type=kind)})
    bounds = [Node(f"{name}/{i}", "Const", value=np.array([i], np.int32)) for i in (0, 1)]
    index = attr(type=tf.int32.as_datatype_enum)
    first = Node(
        f"{name}/rows",
        "StridedSlice",
        [rows.output, bounds[0].output, bounds[1].output, bounds[1].output],
        {"T": attr(type=kind), "Index": index, **dict.fromkeys(_MASKS, attr(i=0))},
    )
    rest = Node(f"{name}/rest", "Const", value=np.array(columns, dtype))
    axis = Node(f"{name}/axis", "Const", value=np.zeros((), np.int32))
    joined = {"T": attr(type=kind), "N": attr(i=2), "Tidx": index}
    whole = Node(name, "ConcatV2", [first.output, rest.output, axis.output], joined)
    dense.nodes |= {n.name: n for n in (rows, *bounds, first, rest, axis, whole)}


def _takes_rows(dense: Graph, reader: Node) -> bool:
    """Whether a reader of a shape takes its first element only."""
    if reader.op != "StridedSlice":
        return False
    bounds = [dense.constant(ref) for ref in reader.inputs[1:4]]
    return [bound.tolist() if bound is not None else None for bound in bounds] == [[0], [1], [1]]
