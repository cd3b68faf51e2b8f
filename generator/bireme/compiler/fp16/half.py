"""FP16 typed in the graph: every op computes in FP16 except the ones that are to stay FP32.

The types are in the file, so that a strongly typed builder (TensorRT ≥ 10, the only kind from 11 on) has no
choice, and no builder flag is needed. A Cast stands only where a tensor passes from one precision to the
other, once for all its readers; ops that merely move numbers take the precision of what they move, so that no
tensor is rounded on its way between two FP32 ops.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bireme.compiler.sound import require_sound
from bireme.errors import CompileError

__all__ = ["FP16_MAX", "MOVES", "float_weights", "is_float", "knows_half", "tensor_types", "to_half"]

#: The largest FP16 number.
FP16_MAX = 65504.0
#: Ops that move numbers without computing: they round nothing.
MOVES = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
})  # fmt: skip

#: Ops that read a shape, not numbers.
_BLIND = frozenset({"Shape", "Size"})

Array = np.ndarray[Any, Any]
_FLOAT, _HALF = int(TensorProto.FLOAT), int(TensorProto.FLOAT16)


def tensor_types(model: onnx.ModelProto) -> dict[str, int]:
    """Tensor → ONNX element type, of inputs, weights and everything computed."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {weight.name: weight.data_type for weight in inferred.initializer}


def float_weights(model: onnx.ModelProto) -> dict[str, Array]:
    """FP32 constants by name."""
    weights = model.graph.initializer
    return {weight.name: numpy_helper.to_array(weight) for weight in weights if weight.data_type == _FLOAT}


def is_float(node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Whether a node reads or makes an FP32 tensor, so that its precision is a choice."""
    known = any(types.get(name) == _FLOAT for name in (*node.input, *node.output))
    return known and node.op_type not in _BLIND


def knows_half(node: onnx.NodeProto, opset: int) -> bool:
    """Whether ONNX defines the op for FP16 (it does not for Range, for example)."""
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    # Of the outputs only those that are made: LayerNormalization's mean and deviation are never FP16.
    used = {formal.type_str for formal in (*schema.inputs, *schema.outputs[: len(node.output)])}
    for constraint in schema.type_constraints:
        if constraint.type_param_str not in used:
            continue
        allowed = set(constraint.allowed_type_strs)
        if "tensor(float)" in allowed and "tensor(float16)" not in allowed:
            return False
    return True


def to_half(
    model: onnx.ModelProto, fp32: Collection[str], handover: Literal["float32", "float16"]
) -> onnx.ModelProto:
    """Type a network in FP16.

    Args:
        model: FP32 throughout, nodes named, no subgraphs, weights as initializers.
        fp32: names of the nodes that stay FP32. A node that moves numbers follows its neighbours; named, it
            keeps what comes as FP32.
        handover: type of the inputs.

    Returns:
        The same network; inputs are of type `handover`, outputs FP32.

    Raises:
        CompileError: a constant of an FP16 node is too large for FP16, or the graph does not hold together.
    """
    return _Typed(model, frozenset(fp32), handover).model()


class _Typed:
    """Types one network; used once."""

    def __init__(self, model: onnx.ModelProto, fp32: frozenset[str], handover: str) -> None:
        self.source = model
        self.types = tensor_types(model)
        self.weights = float_weights(model)
        self.outputs = {value.name for value in model.graph.output}
        self.taken = set(self.types)
        #: Tensor → (name, precision) as it is made; every float tensor that is no constant is in it.
        self.made: dict[str, tuple[str, int]] = {}
        self.casts: dict[tuple[str, int], str] = {}
        self.constants: dict[tuple[str, int], str] = {}
        self.new_weights = [w for w in model.graph.initializer if w.data_type != _FLOAT]
        self.nodes: list[onnx.NodeProto] = []
        self.handover = _HALF if handover == "float16" else _FLOAT
        opset = next(entry.version for entry in model.opset_import if not entry.domain)
        self.kept = {
            node.name for node in model.graph.node if node.name in fp32 or not knows_half(node, opset)
        }
        self.wanted = self._wanted_in_full()

    def model(self) -> onnx.ModelProto:
        graph = self.source.graph
        inputs = []
        for value in graph.input:
            copy = onnx.ValueInfoProto()
            copy.CopyFrom(value)
            if value.type.tensor_type.elem_type == _FLOAT:
                copy.type.tensor_type.elem_type = self.handover
                self.made[value.name] = (value.name, self.handover)
            inputs.append(copy)
        for node in graph.node:
            self._node(node)
        made = helper.make_graph(self.nodes, graph.name, inputs, list(graph.output), self.new_weights)
        result = helper.make_model(
            made, opset_imports=list(self.source.opset_import), ir_version=self.source.ir_version
        )
        result.producer_name = self.source.producer_name
        require_sound(result, "precision", "`precision: {mode: fp32}` goes without the pass")
        return result

    def _moves(self, node: onnx.NodeProto) -> bool:
        same = self.types.get(node.input[0]) == self.types.get(node.output[0]) if node.input else False
        return node.op_type in MOVES or (node.op_type == "Cast" and same)

    def _wanted_in_full(self) -> set[str]:
        """Tensors that an FP32 op, or an output of the network, reads: directly or moved about."""
        wanted = set(self.outputs)
        for node in reversed(self.source.graph.node):
            moved = self._moves(node) and wanted.intersection(node.output)
            if moved or (node.name in self.kept and node.op_type not in _BLIND):
                wanted.update(node.input)
        return wanted

    def _precision(self, node: onnx.NodeProto) -> int:
        sources = self._sources(node)
        if self._moves(node) and sources and _FLOAT not in sources:
            return _HALF  # there is no more to keep
        if node.name in self.kept:
            return _FLOAT
        if sources and not self._moves(node):
            return _HALF
        # What moves numbers, or makes them of integers, keeps what there is for those who want it.
        lossless = not sources or _FLOAT in sources
        return _FLOAT if lossless and self.wanted.intersection(node.output) else _HALF

    def _sources(self, node: onnx.NodeProto) -> list[int]:
        """Precision of the float tensors that a node reads, constants left out."""
        return [self.made[name][1] for name in node.input if name in self.made]

    def _node(self, node: onnx.NodeProto) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if is_float(node, self.types):
            precision = self._precision(node)
            copy.input[:] = [self._read(name, precision, node) for name in node.input]
            self._retype(copy, precision)
            copy.output[:] = [self._make(name, precision) for name in node.output]
            self.nodes.append(copy)
            for name in self.outputs.intersection(node.output):
                if self.made[name][1] == _HALF:
                    self._cast(self.made[name][0], name, _FLOAT)
            return
        copy.input[:] = [self.made[name][0] if name in self.made else name for name in node.input]
        self.nodes.append(copy)

    def _make(self, name: str, precision: int) -> str:
        if self.types.get(name) != _FLOAT:
            return name
        own = self._free(f"{name}_half") if name in self.outputs and precision == _HALF else name
        self.made[name] = (own, precision)
        return own

    def _read(self, name: str, precision: int, node: onnx.NodeProto) -> str:
        """The tensor in the precision that is asked for."""
        if name in self.weights:
            return self._constant(name, precision, node)
        if name not in self.made or self.made[name][1] == precision:
            return self.made[name][0] if name in self.made else name
        if (name, precision) not in self.casts:
            suffix = "half" if precision == _HALF else "full"
            self.casts[name, precision] = self._free(f"{name}_{suffix}")
            self._cast(self.made[name][0], self.casts[name, precision], precision)
        return self.casts[name, precision]

    def _cast(self, source: str, target: str, precision: int) -> None:
        self.nodes.append(helper.make_node("Cast", [source], [target], f"Cast_{target}", to=precision))

    def _constant(self, name: str, precision: int, node: onnx.NodeProto) -> str:
        if (name, precision) not in self.constants:
            value = self.weights[name]
            if precision == _HALF:
                large = np.abs(value[np.isfinite(value)]).max(initial=0.0)
                if large > FP16_MAX:
                    raise CompileError(
                        f"op {node.op_type} (node '{node.doc_string or node.name}')",
                        f"has the constant {large:g}, which FP16 cannot hold",
                        "list it under `precision: {keep_fp32: […]}` in the spec",
                    )
                own, value = self._free(f"{name}_half"), value.astype(np.float16)
            else:
                own = name
            self.new_weights.append(numpy_helper.from_array(np.asarray(value, order="C"), own))
            self.constants[name, precision] = own
        return self.constants[name, precision]

    def _retype(self, node: onnx.NodeProto, precision: int) -> None:
        """Attributes that say a type: where Cast casts to, what ConstantOfShape is filled with."""
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _FLOAT:
                attribute.i = precision
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == _FLOAT:
                value = numpy_helper.to_array(attribute.t)
                dtype = np.float16 if precision == _HALF else np.float32
                attribute.t.CopyFrom(numpy_helper.from_array(value.astype(dtype)))

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
