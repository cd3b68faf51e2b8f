"""Whether a strongly typed TensorRT takes a dense network as it is: a static check, no TensorRT needed.

TensorRT 11 types every network strongly, 10 does so when asked to (`--stronglyTyped`): each tensor has the
type that follows from the inputs and the ops, and no operand is converted silently. So the check follows the
types through the graph and asks of every node what `tensorrt_ops` says of its op: operands of one type, one
that the op takes, conditions, indices and shapes of theirs, weights where the parser needs weights. Shapes
must follow from the shapes of the inputs alone: optimization profiles and CUDA Graphs fix them before any
value is known.

It proves that the parser has no reason to refuse and the builder none to convert, as far as the documents
that `tensorrt_ops` cites go. It proves nothing about what the kernels compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from bireme.compiler.fp16.layers import origin
from bireme.compiler.fp16.tensorrt_ops import INTEGERS, KNOWN, OPSETS, RULES, SINGLE_OUTPUT
from bireme.errors import CompileError

__all__ = ["Fault", "require_strong_types", "type_faults"]

_OURS = (
    "a fault of the compiler, not of your model: please report it; `precision: {mode: fp32}` may do without"
)
_THEIRS = "replace the op in the model, or build with --target cpu"
#: Ops whose output follows from shapes alone.
_OF_SHAPES = frozenset({"Shape", "Size"})
_INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True)
class Fault:
    """A reason to refuse.

    Args:
        where: the node, weight or tensor.
        message: what is wrong with it.
        hint: the remedy.
    """

    where: str
    message: str
    hint: str


def require_strong_types(model: onnx.ModelProto) -> None:
    """Refuse a network that some TensorRT from 8.6 to 11 would not take, or would convert silently.

    Args:
        model: a dense network, final in every way.

    Raises:
        CompileError: naming the first node at fault, and how many more there are.
    """
    faults = type_faults(model)
    if faults:
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise CompileError(f"TensorRT, {faults[0].where}", f"{faults[0].message}{more}", faults[0].hint)


def type_faults(model: onnx.ModelProto) -> list[Fault]:
    """All reasons to refuse, in the order of the graph; empty if there are none."""
    faults = list(_of_ops(model))
    if faults:
        return faults  # an op that nobody knows has no types to ask about
    types = _types(model)
    return [*_of_weights(model), *_of_nodes(model, types), *_of_ends(model, types)]


def _of_ops(model: onnx.ModelProto) -> Iterator[Fault]:
    oldest, newest = OPSETS
    for entry in model.opset_import:
        if entry.domain not in ("", "ai.onnx"):
            yield Fault(f"operator set '{entry.domain}'", "is not ONNX's own", _THEIRS)
        elif not oldest <= entry.version <= newest:
            yield Fault(f"opset {entry.version}", f"is not one of {oldest} to {newest}", _OURS)
    for node in model.graph.node:
        if any(a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
            yield Fault(_name(node), "has a subgraph of its own", _THEIRS)
        elif node.op_type not in RULES or node.domain not in ("", "ai.onnx"):
            yield Fault(_name(node), "is not an op that every TensorRT from 8.6 to 11 takes", _THEIRS)


def _of_weights(model: onnx.ModelProto) -> Iterator[Fault]:
    """Constants are of types that TensorRT has, and fit into what 8.6 makes of them."""
    readers: dict[str, onnx.NodeProto] = {}
    cut_off = set()  # weights that are more than the bounds of a slice, which may lie anywhere
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            readers.setdefault(name, node)
            if node.op_type != "Slice" or index not in (1, 2):
                cut_off.add(name)
    for weight in model.graph.initializer:
        where = f"weight {weight.name}"
        if weight.name in readers:
            where += f" of {_name(readers[weight.name])}"
        if weight.data_type not in KNOWN:
            yield Fault(where, f"is {_text(weight.data_type)}, which TensorRT does not have", _THEIRS)
        elif weight.data_type == TensorProto.INT64 and weight.name in cut_off:
            value = numpy_helper.to_array(weight)
            if value.size and (int(value.min()) not in _INT32 or int(value.max()) not in _INT32):
                yield Fault(where, "holds integers beyond 32 bits, which TensorRT 8.6 would cut off", _THEIRS)


def _of_nodes(model: onnx.ModelProto, types: Mapping[str, int]) -> Iterator[Fault]:
    weights = {weight.name for weight in model.graph.initializer}
    known_late = {value.name for value in model.graph.input}  # tensors that follow from values, not shapes
    for node in model.graph.node:
        if node.op_type not in _OF_SHAPES and known_late.intersection(node.input):
            known_late.update(node.output)
        yield from _of_operands(node, types)
        yield from _of_roles(node, weights, known_late)
        extra = [name for name in node.output[1:] if name]
        if node.op_type in SINGLE_OUTPUT and extra:
            yield Fault(_name(node), f"makes a second output, {extra[0]}, which TensorRT does not", _THEIRS)
        message = _ATTRIBUTES.get(node.op_type, _nothing)(node, _attributes(node))
        if message:
            yield Fault(_name(node), message, _OURS if node.op_type == "Shape" else _THEIRS)
        yield from _of_outputs(node, types)


def _of_ends(model: onnx.ModelProto, types: Mapping[str, int]) -> Iterator[Fault]:
    """Inputs are of types that TensorRT has, outputs of those that the file says."""
    for value in model.graph.input:
        if types[value.name] not in KNOWN:
            yield Fault(f"input '{value.name}'", f"is {_text(types[value.name])}", _OURS)
    for value in model.graph.output:
        said, made = int(value.type.tensor_type.elem_type), types.get(value.name, 0)
        if said != made:
            message = f"is said to be {_text(said)} and is {_text(made)}"
            yield Fault(f"output '{value.name}'", message, _OURS)


def _of_operands(node: onnx.NodeProto, types: Mapping[str, int]) -> Iterator[Fault]:
    """Types of a node's operands, each by its role."""
    rule = RULES[node.op_type]
    found: dict[int, str] = {}
    for role, name in _roles(node):
        kind = types.get(name, 0)
        if role in "nx":
            found.setdefault(kind, name)
            if kind not in rule.types:
                yield Fault(_name(node), f"works on {_text(kind)}, which TensorRT does not", _THEIRS)
        elif role == "b" and kind != TensorProto.BOOL:
            yield Fault(_name(node), f"has a condition, {name}, that is {_text(kind)}", _OURS)
        elif role in "isw" and kind not in INTEGERS:
            yield Fault(
                _name(node), f"has an operand, {name}, that is {_text(kind)} instead of an integer", _OURS
            )
    if len(found) > 1:
        both = " and ".join(f"{name} ({_text(kind)})" for kind, name in found.items())
        yield Fault(_name(node), f"mixes the types of {both}", _OURS)


def _of_outputs(node: onnx.NodeProto, types: Mapping[str, int]) -> Iterator[Fault]:
    for name in filter(None, node.output):
        if types.get(name, 0) == 0:
            yield Fault(
                _name(node), f"makes a tensor, {name}, of a type that does not follow from the graph", _OURS
            )
        elif types[name] not in KNOWN:
            yield Fault(_name(node), f"makes {_text(types[name])}, which TensorRT does not have", _THEIRS)


def _of_roles(node: onnx.NodeProto, weights: set[str], known_late: set[str]) -> Iterator[Fault]:
    """Operands that must be known before any value is."""
    for role, name in _roles(node):
        if role == "w" and name not in weights:
            yield Fault(_name(node), f"computes an operand, {name}, that has to be a weight", _THEIRS)
        if role in "ns" and name in known_late:
            yield Fault(_name(node), f"takes a shape, {name}, from values instead of shapes", _THEIRS)


def _roles(node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
    """(role, tensor) of the operands that are there."""
    roles = RULES[node.op_type].roles
    for index, name in enumerate(node.input):
        if name:
            yield roles[min(index, len(roles) - 1)], name


def _shape(_: onnx.NodeProto, attributes: Mapping[str, Any]) -> str:
    return "cuts a part out of a shape, which the parser of 8.6 ignores" if attributes else ""


def _top_k(_: onnx.NodeProto, attributes: Mapping[str, Any]) -> str:
    return "" if attributes.get("sorted", 1) else "leaves its result unsorted, which TensorRT does not"


def _einsum(_: onnx.NodeProto, attributes: Mapping[str, Any]) -> str:
    equation = attributes["equation"].decode().replace(" ", "")
    terms = equation.replace("->", ",").split(",")
    if not all(letter in "abcdefghijklmnopqrstuvwxyz" for term in terms for letter in term):
        return f"has the equation {equation}; TensorRT takes small letters only, 8.6 no ellipsis"
    if any(len(set(term)) < len(term) for term in terms):
        return f"has the equation {equation}; TensorRT 8.6 takes no diagonals"
    return ""


def _pool(_: onnx.NodeProto, attributes: Mapping[str, Any]) -> str:
    if len(attributes["kernel_shape"]) not in (2, 3):
        return "pools in one dimension; TensorRT does in two or three"
    return "pools with dilations" if set(attributes.get("dilations", [1])) != {1} else ""


def _scatter(_: onnx.NodeProto, attributes: Mapping[str, Any]) -> str:
    kind = attributes.get("reduction", b"none")
    return "" if kind == b"none" else f"combines what it scatters by '{kind.decode()}'"


def _batch_norm(_: onnx.NodeProto, attributes: Mapping[str, Any]) -> str:
    return "is in training mode" if attributes.get("training_mode", 0) else ""


def _nothing(_: onnx.NodeProto, __: Mapping[str, Any]) -> str:
    return ""


#: Op → what TensorRT objects to in its attributes; "" if nothing.
_ATTRIBUTES: dict[str, Callable[[onnx.NodeProto, Mapping[str, Any]], str]] = {
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Einsum": _einsum,
    "LpPool": _pool,
    "MaxPool": _pool,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shape": _shape,
    "TopK": _top_k,
}


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor → element type as it follows from inputs, weights and ops, whatever the file claims."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.ClearField("type")
    graph = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: int(value.type.tensor_type.elem_type) for value in values}
    return types | {weight.name: int(weight.data_type) for weight in graph.initializer}


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _text(kind: int) -> str:
    return str(TensorProto.DataType.Name(kind)).lower() if kind else "of no known type"


def _name(node: onnx.NodeProto) -> str:
    return f"op {node.op_type} (node '{origin(node)}')"
