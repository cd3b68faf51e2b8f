"""Ops that keep rows apart, carried from [rows, …] to [users, candidates, …].

`HANDLERS[op]` returns the lifted output (a tuple where the op has several), or None where this use of the op
could mix rows (a softmax over the row axis, a reshape across rows, a broadcast of one tensor's rows against
another's columns). An op without a handler is treated like one that returns None. To allow a further op, add
its handler here.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from bireme.compiler.rows.lifted import Attributes, Context
from bireme.compiler.rows.row_axes import shift
from bireme.compiler.rows.row_elementwise import ELEMENTWISE, elementwise, sigmoid
from bireme.compiler.rows.row_more import MORE
from bireme.compiler.rows.row_moves import concat, expand, reshape, slice_, split, squeeze, tile, transpose
from bireme.compiler.rows.row_products import gemm
from bireme.compiler.rows.row_reduce import REDUCTIONS, reduce
from bireme.compiler.rows.row_values import Const, Lifted, Tensor

__all__ = ["HANDLERS", "Handler"]

Handler = Callable[[Context, onnx.NodeProto, list[Lifted], Attributes], "Lifted | tuple[Lifted, ...] | None"]


def _softmax(
    lift: Context, node: onnx.NodeProto, inputs: list[Lifted], attributes: Attributes
) -> Lifted | None:
    axis = shift(attributes.get("axis", -1), lift.rank(node, 0))
    if axis is None or isinstance(inputs[0], Const):
        return None
    tensor = lift.writer.write(inputs[0])
    return Tensor(lift.writer.node(node.op_type, [tensor.name], axis=axis), tensor.side, lift.rest(node))


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(REDUCTIONS, reduce),
    "Sigmoid": sigmoid,
    "Gemm": gemm,
    "Concat": concat,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Squeeze": squeeze,
    "Unsqueeze": squeeze,
    "Reshape": reshape,
    "Transpose": transpose,
    "Slice": slice_,
    "Split": split,
    "Tile": tile,
    "Expand": expand,
    **MORE,
}
