"""A diagonal put into square matrices (`MatrixSetDiagV3`), as a choice; tf2onnx makes loops of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.compiler.graph import Graph, Node, tf
from bireme.compiler.shapes import TensorSpec, tensor_specs

__all__ = ["spell_out_diagonals"]


def spell_out_diagonals(graph: Graph) -> Graph:
    """`set_diag(x, d)` → `where(eye, d[…, None], x)`, for main diagonals of square matrices of known size.

    Args:
        graph: the dense graph; it stays as it is.
    """
    if not any(node.op == "MatrixSetDiagV3" for node in graph.nodes.values()):
        return graph
    specs, graph = tensor_specs(graph), graph.copy()
    for node in [node for node in graph.nodes.values() if node.op == "MatrixSetDiagV3"]:
        matrix, diagonal, offset = node.inputs
        size, place = _square(specs.get(matrix)), graph.constant(offset)
        if size is None or place is None or place.any():
            continue
        eye = Node(f"{node.name}/eye", "Const", value=np.eye(size, dtype=bool))
        last = Node(f"{node.name}/last", "Const", value=np.array(-1, dtype=np.int32))
        kind: dict[str, Any] = {"T": node.attr["T"]}
        axis = kind | {"Tdim": tf.compat.v1.AttrValue(type=tf.int32.as_datatype_enum)}
        column = Node(f"{node.name}/column", "ExpandDims", [diagonal, last.output], axis)
        choice = Node(node.name, "SelectV2", [eye.output, column.output, matrix], kind)
        graph.nodes |= {made.name: made for made in (eye, last, column, choice)}
    graph.sort()
    return graph


def _square(spec: TensorSpec | None) -> int | None:
    """Rows of the matrices, if there are as many columns."""
    last = spec.shape[-2:] if spec is not None and spec.shape is not None else ()
    return last[0] if len(last) == 2 and last[0] == last[1] else None
