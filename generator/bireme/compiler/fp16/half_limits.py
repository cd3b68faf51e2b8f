"""Which ops FP16 cannot carry, found without trying: by their constants, and by ranges on sample requests.

`forced` may never be FP16 (a value overflows, a divisor becomes 0, ONNX does not define the op for FP16).
`suspect` starts as FP32, and the search may release it (a difference of close numbers, a comparison that
rounding could flip).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bireme.compiler.fp16.half import FP16_MAX, MOVES, float_weights, is_float, knows_half, tensor_types
from bireme.compiler.fp16.ranges import Range

__all__ = ["CLIPPED", "HEADROOM", "Limited", "Mask", "clip", "find_limits", "find_masks"]

Array = np.ndarray[Any, Any]

#: Production sees what samples do not: a tensor within this factor of FP16's limit counts as beyond it.
HEADROOM = 2.0
#: What a mask's "minus infinity" becomes: e to that is 0, and there is room for what is added to it.
CLIPPED = FP16_MAX / HEADROOM
#: Smallest FP16 number with all its digits.
_NORMAL = 2.0**-14
#: A sum whose terms are so much larger than its spread that FP16's 11 bits leave it less than 5.
_CANCELS = 64.0
_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
_DECIDES = frozenset({
    "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Round", "Sign",
})  # fmt: skip
#: Ops that a tiny constant must not reach as 0, and the operand that it matters for.
_TOUCHY = {"Div": 1, "Log": 0, "Reciprocal": 0, "Sqrt": 0, "Pow": 0}
#: Ops that pass a tiny constant on.
_PASSES = MOVES | {"Abs", "Add", "Clip", "Max", "ReduceMax", "ReduceSum", "Sqrt"}
_MASKS = ("Add", "Mul", "Where")
_TO_SOFTMAX = MOVES | {"Add", "Div", "Mul", "Sub", "Where"}


@dataclass
class Limited:
    """Node → why it is to stay FP32."""

    forced: dict[str, str] = field(default_factory=dict)
    suspect: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mask:
    """A constant beyond FP16 whose only use is to lose a softmax.

    Args:
        weight: its name.
        value: its extreme.
        origin: the node that reads it, by its name in TensorFlow.
    """

    weight: str
    value: float
    origin: str


def find_masks(model: onnx.ModelProto) -> list[Mask]:
    """Constants like −2³²+1 that stand for minus infinity before a softmax: a branch of Where, or added.

    tf2onnx also writes Where as a sum of products with the condition as 0 or 1.
    """
    readers = _readers(model)
    masks = []
    for name, value in float_weights(model).items():
        known = value[np.isfinite(value)]
        if not known.size or np.abs(known).max() <= FP16_MAX:
            continue
        users = readers.get(name, [])
        if users and all(n.op_type in _MASKS and _ends_in_softmax(n, readers) for n in users):
            extreme = float(known[np.abs(known).argmax()])
            masks.append(Mask(name, extreme, users[0].doc_string or users[0].name))
    return masks


def clip(model: onnx.ModelProto, masks: list[Mask]) -> onnx.ModelProto:
    """The same network, the values of these constants drawn into ±`CLIPPED`; infinities stay."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    names = {mask.weight for mask in masks}
    for weight in result.graph.initializer:
        if weight.name in names:
            value = numpy_helper.to_array(weight)
            drawn = np.where(np.isfinite(value), np.clip(value, -CLIPPED, CLIPPED), value)
            weight.CopyFrom(numpy_helper.from_array(drawn.astype(np.float32), weight.name))
    return result


def find_limits(model: onnx.ModelProto, ranges: Mapping[str, Range]) -> Limited:
    """Look at every node.

    Args:
        model: FP32, masks clipped.
        ranges: tensor → range on the samples.
    """
    found = Limited()
    types, weights = tensor_types(model), float_weights(model)
    makers = {output: node for node in model.graph.node for output in node.output}
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    for node in model.graph.node:
        if not is_float(node, types):
            continue
        if not knows_half(node, opset):
            found.forced[node.name] = f"ONNX has no {node.op_type} in FP16"
        for name in node.input:
            if name in weights and (large := _largest(weights[name])) > FP16_MAX:
                found.forced.setdefault(node.name, f"its constant {large:.3g} is beyond FP16")
        if node.op_type not in MOVES:
            _by_range(node, ranges, found)
        _by_tiny_constant(node, makers, weights, found)
        if node.op_type in ("Add", "Sub"):
            _by_cancellation(node, ranges, makers, found)
        if _decides(node, types) and any(name in ranges and not ranges[name].exact for name in node.input):
            _suspect(node, "rounding could flip what it decides", makers, found)
    return found


def _by_range(node: onnx.NodeProto, ranges: Mapping[str, Range], found: Limited) -> None:
    seen = max((ranges[name].largest for name in (*node.input, *node.output) if name in ranges), default=0.0)
    if seen > FP16_MAX:
        found.forced.setdefault(node.name, f"values reach {seen:.3g}, FP16 ends at {FP16_MAX:g}")
    elif seen > FP16_MAX / HEADROOM:
        found.forced.setdefault(node.name, f"values reach {seen:.3g}, too close to FP16's end {FP16_MAX:g}")


def _by_tiny_constant(
    node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto], weights: Mapping[str, Array], found: Limited
) -> None:
    """A guard like 1e-12 that FP16 makes 0 guards nothing: the whole way from it to what it guards stays."""
    if node.op_type not in _TOUCHY:
        return
    path: dict[str, str] = {}

    def reaches(name: str) -> float | None:
        if name in weights:
            value = np.abs(weights[name])
            tiny = value[(value > 0) & (value < _NORMAL)]
            return float(tiny.min()) if tiny.size else None
        maker = makers.get(name)
        if maker is None or maker.op_type not in _PASSES:
            return None
        values = [value for value in (reaches(source) for source in maker.input) if value is not None]
        if values:
            path[maker.name] = maker.op_type
        return min(values, default=None)

    tiny = reaches(node.input[_TOUCHY[node.op_type]])
    if tiny is not None:
        reason = f"FP16 loses the constant {tiny:.3g} that guards {node.op_type}"
        for name in (*path, node.name):
            found.forced.setdefault(name, reason)


def _by_cancellation(
    node: onnx.NodeProto,
    ranges: Mapping[str, Range],
    makers: Mapping[str, onnx.NodeProto],
    found: Limited,
) -> None:
    terms = sum(ranges[name].size for name in node.input if name in ranges)
    spread = ranges[node.output[0]].spread if node.output[0] in ranges else 0.0
    if spread > 0 and terms > _CANCELS * spread:
        _suspect(
            node, f"its terms are {terms / spread:.0f} times larger than their result varies", makers, found
        )


def _suspect(node: onnx.NodeProto, reason: str, makers: Mapping[str, onnx.NodeProto], found: Limited) -> None:
    """The node, and what feeds it up to the next dense layer: rounded inputs would be the same loss."""
    pending = [node]
    while pending:
        current = pending.pop()
        if current.op_type not in MOVES:
            found.suspect.setdefault(current.name, reason)
        for name in current.input:
            maker = makers.get(name)
            if maker is not None and maker.op_type not in _PRODUCTS and maker.name not in found.suspect:
                pending.append(maker)


def _decides(node: onnx.NodeProto, types: Mapping[str, int]) -> bool:
    floating = types.get(node.input[0]) == onnx.TensorProto.FLOAT if node.input else False
    to_integer = node.op_type == "Cast" and types.get(node.output[0]) != onnx.TensorProto.FLOAT
    return floating and (node.op_type in _DECIDES or to_integer)


def _largest(value: Array) -> float:
    return float(np.abs(value[np.isfinite(value)]).max(initial=0.0))


def _readers(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def _ends_in_softmax(node: onnx.NodeProto, readers: Mapping[str, list[onnx.NodeProto]]) -> bool:
    """Whether everything that a node's output reaches is a softmax."""
    ends = readers.get(node.output[0], [])
    return bool(ends) and all(
        n.op_type == "Softmax" or (n.op_type in _TO_SOFTMAX and _ends_in_softmax(n, readers)) for n in ends
    )
