"""What an FP16 network computes, without a GPU: in FP32, rounded to FP16 after every op.

ONNX Runtime's CPU provider runs an FP16 network too, but drops the rounding between ops (1.32: 100 · 1000 ·
0.001 in FP16 gives 100, not infinity; it computes in FP32 and removes its own casts between two ops). Here
each FP16 tensor passes an explicit pair of Casts, which it keeps. Ops are exact up to FP32 inside, as those
of a GPU that accumulates in FP32; a GPU that fuses ops rounds less often than this.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bireme.compiler.fp16.half import MOVES, tensor_types

__all__ = ["emulated"]

_FLOAT, _HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def emulated(model: onnx.ModelProto) -> onnx.ModelProto:
    """An FP32 network that gives what `model`, typed FP16 in parts, gives on a GPU.

    Args:
        model: as `to_half` makes it.

    Returns:
        Inputs and outputs as before, FP16 nowhere but in Casts.
    """
    types = tensor_types(model)
    names: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def rounded(source: str, target: str) -> None:
        nodes.append(helper.make_node("Cast", [source], [f"{target}~16"], to=_HALF))
        nodes.append(helper.make_node("Cast", [f"{target}~16"], [target], to=_FLOAT))

    for value in model.graph.input:
        if types[value.name] == _HALF:
            names[value.name] = f"{value.name}~32"
            nodes.append(helper.make_node("Cast", [value.name], [names[value.name]], to=_FLOAT))
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [names.get(name, name) for name in node.input]
        halves = [name for name in node.output if types.get(name) == _HALF]
        for attribute in copy.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _HALF:
                attribute.i = _FLOAT
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == _HALF:
                attribute.t.CopyFrom(_widened(attribute.t))
        if node.op_type not in MOVES:
            copy.output[:] = [f"{name}~" if name in halves else name for name in node.output]
        nodes.append(copy)
        for name in halves if node.op_type not in MOVES else []:
            rounded(f"{name}~", name)
    weights = [_widened(w) if w.data_type == _HALF else w for w in model.graph.initializer]
    graph = helper.make_graph(
        nodes, model.graph.name, list(model.graph.input), list(model.graph.output), weights
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)


def _widened(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
