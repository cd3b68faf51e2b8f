"""Main diagonals of matrices in ONNX: chosen by a constant, where tf2onnx makes loops and branches.

Session models mask a position against itself this way. Other diagonals, unknown shapes: as tf2onnx does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["DIAGONALS"]


def _is_main(node: Any, position: int) -> bool:
    place = node.inputs[position]
    return bool(place.is_const() and not np.any(place.get_tensor_value(as_list=False)))


def _known(context: Any, ref: str) -> tuple[int, int] | None:
    """Rows and columns of the matrices, if the graph says."""
    shape = context.get_shape(ref)
    return (shape[-2], shape[-1]) if shape is not None and len(shape) > 1 and min(shape[-2:]) > 0 else None


def _main(context: Any, name: str, rows: int, columns: int) -> str:
    return str(context.make_const(f"{name}/main", np.eye(rows, columns, dtype=bool)).output[0])


def _line(context: Any, name: str, diagonal: str, axis: int) -> str:
    """A diagonal beside itself, [n] → [n, 1] or [1, n]."""
    where = context.make_const(f"{name}/axis", np.array([axis], np.int64)).output[0]
    return str(context.make_node("Unsqueeze", [diagonal, where], name=f"{name}/line").output[0])


def _replace(context: Any, node: Any, op: str, inputs: list[str], **attributes: Any) -> None:
    dtypes, shapes = node.output_dtypes, node.output_shapes
    context.remove_node(node.name)
    context.make_node(
        op, inputs, attr=attributes, outputs=node.output, name=node.name, dtypes=dtypes, shapes=shapes
    )


def _set_diagonal(context: Any, node: Any, *_: Any) -> None:
    """`tf.linalg.set_diag`: inputs matrix, diagonal, k."""
    known = _known(context, node.input[0])
    if known is None or not _is_main(node, 2):
        from tf2onnx.onnx_opset.tensor import MatrixSetDiagV3

        MatrixSetDiagV3.version_12(context, node)
        return
    # The diagonal is as long as the shorter side, and repeated along the longer one.
    line = _line(context, node.name, node.input[1], -1 if known[0] <= known[1] else -2)
    _replace(context, node, "Where", [_main(context, node.name, *known), line, node.input[0]])


def _diagonal_part(context: Any, node: Any, *_: Any) -> None:
    """`tf.linalg.diag_part`: inputs matrix, k, padding."""
    known = _known(context, node.input[0])
    if known is None or not _is_main(node, 1):
        from tf2onnx.onnx_opset.tensor import MatrixDiagPartV2V3

        MatrixDiagPartV2V3.version_13(context, node)
        return
    dtype = context.get_dtype(node.input[0])
    zero = context.make_const(f"{node.name}/zero", np.zeros((), _numpy(dtype))).output[0]
    chosen = context.make_node(
        "Where", [_main(context, node.name, *known), node.input[0], zero], name=f"{node.name}/chosen"
    ).output[0]
    axis = np.array([-1 if known[0] <= known[1] else -2], np.int64)
    axes = context.make_const(f"{node.name}/axes", axis).output[0]
    _replace(context, node, "ReduceSum", [chosen, axes], keepdims=0)


def _as_diagonal(context: Any, node: Any, *_: Any) -> None:
    """`tf.linalg.diag`: inputs diagonal, k, rows, columns, padding."""
    shape = context.get_shape(node.input[0])
    free = all(
        other.is_const() and other.get_tensor_value(as_list=False).item() == -1 for other in node.inputs[2:4]
    )
    if not shape or shape[-1] < 1 or not free or not _is_main(node, 1):
        from tf2onnx.onnx_opset.tensor import MatrixDiag

        MatrixDiag.version_13(context, node)
        return
    line = _line(context, node.name, node.input[0], -1)
    _replace(context, node, "Where", [_main(context, node.name, shape[-1], shape[-1]), line, node.input[4]])


def _numpy(dtype: int) -> Any:
    from tf2onnx.utils import map_onnx_to_numpy_type

    return map_onnx_to_numpy_type(dtype)


#: TensorFlow op → how tf2onnx is told to convert it.
DIAGONALS: dict[str, Callable[..., None]] = {
    "MatrixSetDiagV3": _set_diagonal,
    "MatrixDiagPartV3": _diagonal_part,
    "MatrixDiagV3": _as_diagonal,
}
