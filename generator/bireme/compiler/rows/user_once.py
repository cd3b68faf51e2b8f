"""Pass 9, user_once: from rows to [users, candidates], the user side computed once per user.

Every tensor gets a side. `MatMul(concat(user, items), W)` becomes `user·Wu + items·Wi`; elsewhere the user
tensor broadcasts over the candidates as late as possible. The same walk proves that no op mixes candidates:
only ops known to treat rows independently are carried over, any other stops the build with its name. Padding
rows can therefore never change real ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from bireme.compiler.cut.split import Boundary
from bireme.compiler.dense import OPSET
from bireme.compiler.rows.canonical import canonicalise
from bireme.compiler.rows.layer_norms import fuse_layer_norms
from bireme.compiler.rows.lifted import Context, Writer
from bireme.compiler.rows.listwise import Listwise
from bireme.compiler.rows.parallel import merge_parallel
from bireme.compiler.rows.row_ops import HANDLERS
from bireme.compiler.rows.row_shapes import row_shapes
from bireme.compiler.rows.row_values import Const, Lifted, Slice
from bireme.compiler.sound import require_sound
from bireme.errors import CompileError

__all__ = ["user_once"]

_OR_LISTWISE = "; or, if the model ranks a list as a whole, set `listwise: true` in the spec"


def user_once(
    rowwise: onnx.ModelProto,
    boundaries: Sequence[Boundary],
    user_width: int,
    item_width: int,
    handover: str,
    listwise: bool = False,
) -> onnx.ModelProto:
    """Rewrite the row-wise dense network.

    Args:
        rowwise: inputs are the boundaries, outputs the tasks, dim 0 of each is the row.
        boundaries: which columns of `user` or `items` each input is.
        user_width: columns of `user`; 0 if no user feature reaches the network by itself.
        item_width: columns of `items`.
        handover: dtype of both inputs, "float32" or "float16".
        listwise: the rows are one user's list, so ops along them become ops along the candidates.

    Returns:
        ONNX with inputs `user` [users, user_width] (not if that is 0) and `items` [users, candidates,
        item_width] and one FP32 output [users, candidates] a task.

    Raises:
        CompileError: an op may mix candidates.
    """
    tasks = [output.name for output in rowwise.graph.output]
    lift = _Lift(rowwise, boundaries, Writer(user_width, item_width, handover, tasks), listwise)
    for node in rowwise.graph.node:
        lift.node(node)
    element = onnx.TensorProto.FLOAT16 if handover == "float16" else onnx.TensorProto.FLOAT
    inputs = [onnx.helper.make_tensor_value_info("items", element, ["users", "candidates", item_width])]
    if user_width:
        inputs.insert(0, onnx.helper.make_tensor_value_info("user", element, ["users", user_width]))
    for task in tasks:
        lift.output(task)
    outputs = [
        onnx.helper.make_tensor_value_info(task, onnx.TensorProto.FLOAT, ["users", "candidates"])
        for task in tasks
    ]
    writer = lift.writer
    graph = onnx.helper.make_graph(writer.nodes, "dense", inputs, outputs, writer.weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=8)
    merge_parallel(model)
    fuse_layer_norms(model)
    canonicalise(model, keep_origin=True)
    require_sound(model, "user_once")
    return model


class _Lift:
    """Walks the row-wise graph once, in order."""

    def __init__(
        self, rowwise: onnx.ModelProto, boundaries: Sequence[Boundary], writer: Writer, listwise: bool
    ) -> None:
        self.writer = writer
        self.lists = Listwise(writer, row_shapes(rowwise)) if listwise else None
        inferred = onnx.shape_inference.infer_shapes(rowwise, strict_mode=True, data_prop=True)
        rests = {
            value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim[1:])
            for value in (*inferred.graph.value_info, *inferred.graph.output)
            if value.type.tensor_type.HasField("shape")
        }
        self.values: dict[str, Lifted] = {
            weight.name: Const(onnx.numpy_helper.to_array(weight)) for weight in rowwise.graph.initializer
        }
        self.context = Context(writer, self.values, rests)
        for boundary in boundaries:
            self.values[boundary.name] = Slice(writer.input(boundary.side), boundary.offset, boundary.shape)

    def node(self, node: onnx.NodeProto) -> None:
        """Carry one op over.

        Raises:
            CompileError: it is not known to keep rows apart.
        """
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.writer.origin = node.doc_string or node.name
        if node.op_type == "Constant":
            self.values[node.output[0]] = Const(onnx.numpy_helper.to_array(attributes["value"]))
            return
        whole = all(node.input) and all(map(self.context.knows, node.output))
        handler = HANDLERS.get(node.op_type) if whole else None
        result = None
        inputs = [self.values.get(name) for name in node.input]
        values = [value for value in inputs if value is not None]
        if handler is not None and len(values) == len(inputs):
            result = handler(self.context, node, values, attributes)
        if result is None and self.lists is not None and self.lists.node(node, inputs, attributes):
            return
        results = result if isinstance(result, tuple) else (result,) if result is not None else ()
        if len(results) != len(node.output):
            raise CompileError(
                f"op {node.op_type} (node '{node.doc_string or node.name}')",
                "is not known to keep candidates apart, so bucket padding could change real scores",
                "replace it by an op that treats every row on its own" + ("" if self.lists else _OR_LISTWISE),
            )
        self.values.update(zip(node.output, results, strict=True))

    def output(self, task: str) -> None:
        """Write a task as FP32 [users, candidates].

        Raises:
            CompileError: it is more than one number a candidate.
        """
        self.writer.origin = task
        if self.lists is not None and task not in self.values:
            self.lists.output(task)
            return
        value = self.writer.expand(self.writer.write(self.values[task]))
        if value.rest not in ((), (1,)):
            raise CompileError(
                f"output '{task}'",
                f"has {list(value.rest)} values a row; a ranking score is a single number",
                "serve another output, or add a head that reduces it",
            )
        if value.rest == (1,):
            self.writer.node("Squeeze", [value.name, self.writer.axes(2)], name=task)
        else:
            self.writer.node("Identity", [value.name], name=task)
