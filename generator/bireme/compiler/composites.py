"""Sparse and ragged inputs: several tensors of a signature that are one feature of a request.

A `tf.SparseTensor` is three placeholders (indices, values, shape), a `tf.RaggedTensor` two (values, row
splits). In a request the feature is a plain sequence for each row; rows that have fewer elements than the
longest are filled up with a padding value, which the spec may choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bireme.compiler.graph import node_of, tf

__all__ = ["Composite", "default_padding", "find_composites"]

Array = np.ndarray[Any, Any]

#: How the parts of a sparse input are called behind its name: TensorFlow 2, TensorFlow 1.
_SPARSE = (("", "_1", "_2"), ("_indices", "_values", "_dense_shape"))
#: Slices of a ragged tensor's row splits that no value per row would undergo: [1:] and [:-1].
_ENDS = {(1, None), (None, -1)}


@dataclass(frozen=True)
class Composite:
    """One sparse or ragged input.

    Args:
        name: of the feature.
        kind: "sparse": parts are indices, values, shape; "ragged": values, row splits.
        parts: inputs of the signature.
        dtype: of the values, a numpy name ("string" for strings).
        padding: value of the elements that a row does not have.
    """

    name: str
    kind: Literal["sparse", "ragged"]
    parts: tuple[str, ...]
    dtype: str
    padding: Any

    def split(self, rows: Array, dtypes: Mapping[str, Any]) -> dict[str, Array]:
        """The parts for padded rows.

        Args:
            rows: [N, L]; elements equal to the padding are none.
            dtypes: part → numpy dtype.
        """
        padding = self.padding.encode() if isinstance(self.padding, str) else self.padding
        present = np.asarray(rows != (padding if self.dtype == "string" else rows.dtype.type(padding)), bool)
        values = rows[present]
        made: tuple[Array, ...]
        if self.kind == "sparse":
            made = (np.argwhere(present), values, np.array(rows.shape))
        else:
            made = (values, np.append(0, np.cumsum(present.sum(1))))
        return {
            part: value if value.dtype == object else value.astype(dtypes[part])
            for part, value in zip(self.parts, made, strict=True)
        }


def default_padding(dtype: str) -> Any:
    """Value of absent elements unless the spec says another: "" or −1."""
    return "" if dtype == "string" else -1


def find_composites(
    inputs: Mapping[str, Any], graph_def: Any, padding: Mapping[str, Any]
) -> dict[str, Composite]:
    """The sparse and ragged inputs among a signature's.

    Args:
        inputs: signature input → placeholder.
        graph_def: the inlined graph.
        padding: feature → the spec's padding.
    """
    found = {}

    def add(name: str, kind: Literal["sparse", "ragged"], parts: tuple[str, ...], values: Any) -> None:
        dtype = values.dtype.name
        found[name] = Composite(name, kind, parts, dtype, padding.get(name, default_padding(dtype)))

    for name in inputs:
        for ends in _SPARSE:
            base = name.removesuffix(ends[0])
            parts = tuple(base + end for end in ends)
            if name == parts[0] and all(part in inputs for part in parts) and _is_sparse(inputs, parts):
                add(base, "sparse", parts, inputs[parts[1]])
    taken = {part for composite in found.values() for part in composite.parts}
    pairs = [(name, f"{name}_1") for name in inputs if f"{name}_1" in inputs and name not in taken]
    pairs = [(values, splits) for values, splits in pairs if _may_be_ragged(inputs[values], inputs[splits])]
    cut = _cut_at_an_end(graph_def) if pairs else set()
    for values, splits in pairs:
        if node_of(inputs[splits].name) in cut:
            add(values, "ragged", (values, splits), inputs[values])
    return found


def _is_sparse(inputs: Mapping[str, Any], parts: tuple[str, ...]) -> bool:
    indices, values, shape = (inputs[part] for part in parts)
    integers = indices.dtype == tf.int64 and shape.dtype == tf.int64
    ranks = indices.shape.rank == 2 and values.shape.rank == 1
    return bool(integers and ranks and shape.shape.as_list() == [2])


def _may_be_ragged(values: Any, splits: Any) -> bool:
    ones = values.shape.rank == 1 and splits.shape.rank == 1
    return ones and splits.dtype in (tf.int32, tf.int64)


def _cut_at_an_end(graph_def: Any) -> set[str]:
    """Nodes that a ragged op reads, or that are sliced [1:] or [:-1]: row splits, and no values of rows."""
    nodes = {node.name: node for node in graph_def.node}
    found = set()

    def source(name: str) -> str:
        name = name.removeprefix("^").split(":")[0]
        return source(nodes[name].input[0]) if nodes[name].op == "Identity" else name

    for node in graph_def.node:
        sources = [source(name) for name in node.input]
        if node.op.startswith("Ragged"):
            found.update(sources)
        elif node.op == "StridedSlice" and _bounds(node, [nodes[name] for name in sources[1:3]]) in _ENDS:
            found.add(sources[0])
    return found


def _bounds(node: Any, limits: list[Any]) -> tuple[int | None, int | None] | None:
    """(begin, end) of a slice of a vector; None if it is no such slice."""
    if any(limit.op != "Const" for limit in limits) or node.attr["shrink_axis_mask"].i:
        return None
    begin, end = (tf.make_ndarray(limit.attr["value"].tensor) for limit in limits)
    if len(begin) != 1:
        return None
    return (
        None if node.attr["begin_mask"].i & 1 else int(begin[0]),
        None if node.attr["end_mask"].i & 1 else int(end[0]),
    )
