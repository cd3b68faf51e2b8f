"""One form for equal ONNX graphs, so that equal models give equal bytes.

tf2onnx numbers names by counters that live as long as the process, and orders nodes by their names.
"""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
import onnx

__all__ = ["canonicalise", "without_origin"]

#: What tf2onnx appends to the name of a node that it makes: its counter.
_COUNTER = re.compile(r"__\d+")
#: Where a slice ends that takes the rest.
_TO_THE_END = 2**31 - 1

Message = TypeVar("Message", onnx.ModelProto, onnx.NodeProto, onnx.TensorProto)


def canonicalise(model: onnx.ModelProto, keep_origin: bool = False) -> None:
    """Order nodes and weights by what the outputs need, and name everything inside by its place.

    Args:
        model: changed in place; names of inputs and outputs stay.
        keep_origin: leave each node's former name as its documentation.
    """
    graph = model.graph
    _spell_out_shapes(graph)
    nodes = _in_order_of_need(graph)
    used = dict.fromkeys(name for node in nodes for name in node.input)
    weights = {weight.name: weight for weight in graph.initializer}
    ordered = [_copy(weights[name]) for name in used if name in weights]
    fixed = {value.name for value in (*graph.input, *graph.output)}
    names: dict[str, str] = {name: name for name in fixed}

    def free(name: str) -> str:
        while name in fixed:
            name += "_"
        return name

    for index, weight in enumerate(ordered):
        names.setdefault(weight.name, free(f"w{index}"))
        weight.name = names[weight.name]
    for index, node in enumerate(nodes):
        node.doc_string = _COUNTER.sub("", node.name) if keep_origin else ""
        node.name = f"{node.op_type}_{index}"
        for position, output in enumerate(node.output):
            if output:
                names.setdefault(output, free(f"t{index}" + (f"_{position}" if position else "")))
    for node in nodes:
        for field in (node.input, node.output):
            renamed = [names[name] if name else "" for name in field]
            del field[:]
            field.extend(renamed)
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(ordered)
    graph.name = "dense"
    graph.doc_string = ""
    model.producer_name, model.producer_version, model.doc_string = "bireme", "", ""


def without_origin(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model without the names that nodes had in TensorFlow: Keras counts models in a process."""
    result = _copy(model)
    for node in result.graph.node:
        node.doc_string = ""
    return result


def _spell_out_shapes(graph: onnx.GraphProto) -> None:
    """A part of a shape as the whole shape and a slice: TensorRT 8.6's parser ignores `start` and `end`."""
    nodes = [_copy(node) for node in graph.node]
    del graph.node[:]
    for index, node in enumerate(nodes):
        bounds = {a.name: a.i for a in node.attribute} if node.op_type == "Shape" else {}
        if not bounds:
            graph.node.append(node)
            continue
        whole, part = f"whole_shape_{index}/{node.output[0]}", node.output[0]
        graph.node.append(onnx.helper.make_node("Shape", list(node.input), [whole], node.name))
        ends = {"start": bounds.get("start", 0), "end": bounds.get("end", _TO_THE_END), "axis": 0}
        for name, value in ends.items():
            graph.initializer.append(
                onnx.numpy_helper.from_array(np.array([value], np.int64), f"{whole}/{name}")
            )
        graph.node.append(onnx.helper.make_node("Slice", [whole, *(f"{whole}/{n}" for n in ends)], [part]))


def _in_order_of_need(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that outputs need, each behind its inputs, depth first: an order that no name decides."""
    maker = {output: index for index, node in enumerate(graph.node) for output in node.output}
    done: dict[int, onnx.NodeProto] = {}
    for output in graph.output:
        pending = [maker[output.name]] if output.name in maker else []
        while pending:
            index = pending[-1]
            missing = [maker[x] for x in graph.node[index].input if x in maker and maker[x] not in done]
            if index not in done and missing:
                pending.extend(reversed(missing))
            else:
                done.setdefault(index, graph.node[index])
                pending.pop()
    return [_copy(node) for node in done.values()]


def _copy(message: Message) -> Message:
    """A message that outlives the list it is in."""
    result = type(message)()
    result.CopyFrom(message)
    return result
