"""The static check for strongly typed TensorRT: one counter-example a rule, and what it must let through."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compiler_networks import lift, networks
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bireme.compiler.fp16.half import tensor_types, to_half
from bireme.compiler.fp16.strong_types import require_strong_types, type_faults
from bireme.compiler.fp16.tensorrt_ops import KNOWN, RULES
from bireme.errors import CompileError

F, H, I32, I64, B = (getattr(TensorProto, n) for n in ("FLOAT", "FLOAT16", "INT32", "INT64", "BOOL"))
D = TensorProto.DOUBLE


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=f"{op}_node", **attributes)


def network(
    *nodes: onnx.NodeProto,
    inputs: dict[str, int] | None = None,
    out: int = F,
    opset: int = 17,
    domain: str = "",
    **weights: Any,
) -> onnx.ModelProto:
    """Inputs are [n, 4]; the last node's first output is the network's."""
    values = [helper.make_tensor_value_info(n, k, ["n", 4]) for n, k in (inputs or {"x": F}).items()]
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], out, ["n", None])]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(list(nodes), "g", values, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


half, full = np.float16(2), np.float32(2)
both = {"x": F, "h": H}
ints = np.array([1], np.int64)

#: What is wrong → the network, the message, and the node or tensor that it must name.
REFUSED: dict[str, tuple[onnx.ModelProto, str, str]] = {
    "sum of two types": (network(node("Add", "x h"), inputs=both), "mixes the types of x", "Add_node"),
    "constant of another type": (network(node("Mul", "x w"), w=half), r"mixes.*w \(float16\)", "Mul_node"),
    "product": (network(node("MatMul", "x w"), w=np.ones((4, 2), np.float16)), "mixes", "MatMul_node"),
    "bias": (
        network(node("Gemm", "x w b"), w=np.ones((4, 2), np.float32), b=np.ones(2, np.float16)),
        r"mixes.*b \(float16\)",
        "Gemm_node",
    ),
    "joined": (network(node("Concat", "x h", axis=1), inputs=both), "mixes", "Concat_node"),
    "branches": (
        network(node("Greater", "x w", "c"), node("Where", "c x h"), inputs=both, w=full),
        r"x \(float\) and h \(float16\)",
        "Where_node",
    ),
    "compared": (network(node("Less", "x w"), out=B, w=half), "mixes", "Less_node"),
    "clip bounds": (network(node("Clip", "x - w"), w=half), "mixes", "Clip_node"),
    "exponent, which ONNX would allow": (network(node("Pow", "x w"), w=half), "mixes", "Pow_node"),
    "slope": (network(node("PRelu", "x w"), w=half), "mixes", "PRelu_node"),
    "terms of an einsum": (
        network(node("Einsum", "x h", equation="ab,ab->a"), inputs=both), "mixes", "Einsum_node"
    ),
    "norm": (
        network(node("LayerNormalization", "x w"), w=np.ones(4, np.float16)), "mixes", "LayerNormalization_"
    ),
    "padding": (
        network(node("Pad", "x p w"), p=np.zeros(4, np.int64), w=half), "mixes", "Pad_node"
    ),
    "int32 and int64": (
        network(node("Cast", "x", "a", to=I32), node("Add", "a w"), out=I32, w=ints), "mixes", "Add_node"
    ),
    "float64 weight": (network(node("Add", "x w"), w=np.float64(1)), "double", "weight w of op Add"),
    "float64 on the way": (network(node("Cast", "x", to=D), out=D), "makes double", "Cast_node"),
    "uint8": (network(node("Cast", "x", to=TensorProto.UINT8), out=TensorProto.UINT8), "uint8", "Cast_node"),
    "float64 input": (network(node("Identity", "x"), inputs={"x": D}, out=D), "on double", "Identity_node"),
    "softmax of integers": (
        network(node("Cast", "x", "a", to=I32), node("Softmax", "a"), out=I32), "on int32", "Softmax_node"
    ),
    "product of integers": (
        network(node("Cast", "x", "a", to=I32), node("MatMul", "a w"), out=I32, w=np.ones((4, 2), np.int32)),
        "works on int32",
        "MatMul_node",
    ),
    "sum over bools": (
        network(node("Cast", "x", "a", to=B), node("ReduceSum", "a w"), out=B, w=ints), "on bool", "ReduceS"
    ),
    "and of numbers": (network(node("And", "x x"), out=B), "works on float", "And_node"),
    "condition of numbers": (network(node("Where", "x x x")), "a condition, x, that is float", "Where_node"),
    "indices of floats": (network(node("Gather", "x x", axis=1)), "x, that is float instead", "Gather_node"),
    "shape of floats": (
        network(node("Reshape", "x w"), w=np.float32([4, -1])), "w, that is float instead", "Reshape_node"
    ),
    "axes that are computed": (
        network(node("Shape", "x", "s"), node("ReduceSum", "x s")), "has to be a weight", "ReduceSum_node"
    ),
    "shape from values": (
        network(
            node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "i", to=I64),
            node("Unsqueeze", "i w", "s"), node("Expand", "x s"), w=np.array([0]),
        ),
        "from values instead of shapes",
        "Expand_node",
    ),
    "length from values": (
        network(node("ReduceMax", "x", "m", keepdims=0), node("Range", "w m w"), w=full),
        "from values instead of shapes",
        "Range_node",
    ),
    "rows picked by value": (
        network(node("NonZero", "x"), out=I64), "not an op that every TensorRT", "NonZero_node"
    ),
    "op that 8.6 lacks": (network(node("Hardmax", "x")), "not an op that every TensorRT", "Hardmax_node"),
    "foreign op": (
        network(node("Gelu", "x", domain="org.other"), domain="org.other"), "not ONNX's own", "org.other"
    ),
    "new opset": (network(node("Relu", "x"), opset=18), "is not one of 9 to 17", "opset 18"),
    "part of a shape": (
        network(node("Shape", "x", start=1), out=I64), "the parser of 8.6 ignores", "Shape_node"
    ),
    "unsorted": (
        network(node("TopK", "x w", "y z", sorted=0), w=ints), "unsorted", "TopK_node"
    ),
    "large letters": (network(node("Einsum", "x", equation="aB->a")), "small letters", "Einsum_node"),
    "diagonal": (network(node("Einsum", "x", equation="aa->a")), "no diagonals", "Einsum_node"),
    "pooling in 1D": (
        network(node("Unsqueeze", "x w", "a"), node("MaxPool", "a", kernel_shape=[2]), w=ints),
        "in one dimension",
        "MaxPool_node",
    ),
    "scattered sums": (
        network(node("ScatterND", "x i u", reduction="add"), i=np.array([[0]]), u=np.ones((1, 4), "f4")),
        "'add'",
        "ScatterND_node",
    ),
    "training": (
        network(
            node("BatchNormalization", "x w w w w", training_mode=1), w=np.ones(4, np.float32)
        ),
        "training mode",
        "BatchNormalization_node",
    ),
    "second output": (
        network(node("LayerNormalization", "x w", "y m"), w=np.ones(4, np.float32)), "second output", "Layer"
    ),
    "long integers": (
        network(node("Cast", "x", "a", to=I64), node("Add", "a w"), out=I64, w=np.array([2**31])),
        "beyond 32 bits",
        "weight w of op Add",
    ),
    "output of another type than said": (
        network(node("Relu", "x"), out=H), "said to be float16 and is float", "output 'y'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_the_name_of_what_is_at_fault(what: str) -> None:
    model, message, where = REFUSED[what]
    with pytest.raises(CompileError, match=message) as caught:
        require_strong_types(model)
    assert where in caught.value.where
    assert caught.value.hint


def test_loops_are_refused() -> None:
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Relu", "v", "r")],
        "body",
        [helper.make_tensor_value_info(n, k, []) for n, k in (("k", I64), ("c", B), ("v", F))],
        [helper.make_tensor_value_info(n, k, []) for n, k in (("d", B), ("r", F))],
    )
    model = network(node("Loop", "n t x", "y", body=body), n=np.int64(2), t=np.array(True))
    assert [fault.message for fault in type_faults(model)] == ["has a subgraph of its own"]


def test_all_faults_are_counted_in_the_order_of_the_graph() -> None:
    model = network(node("Add", "x w", "a"), node("Mul", "a w", "b"), node("Relu", "b"), w=half)
    assert [fault.where for fault in type_faults(model)] == [
        "op Add (node 'Add_node')",
        "op Mul (node 'Mul_node')",
    ]
    with pytest.raises(CompileError, match="and 1 more"):
        require_strong_types(model)


@pytest.mark.parametrize("kind", [F, H])
def test_shapes_from_shapes_and_long_slices_pass(kind: int) -> None:
    model = network(
        node("Shape", "x", "s"),
        node("Slice", "s zero one zero", "n"),
        node("Concat", "n four", "t", axis=0),
        node("Reshape", "x t", "r"),
        node("Slice", "r last long zero minus", "back"),
        node("Squeeze", "n zero", "k"),
        node("Range", "none k step", "places"),
        node("Cast", "places", "p", to=kind),
        node("Unsqueeze", "p one", "q"),
        node("Add", "back q"),
        inputs={"x": kind}, out=kind, zero=np.array([0]), one=np.array([1]), four=np.array([4]),
        last=np.array([-1]), long=np.array([-(2**63) + 1]), minus=np.array([-1]), none=np.int64(0),
        step=np.int64(1),
    )  # fmt: skip
    onnx.checker.check_model(model, full_check=True)
    assert type_faults(model) == []


@settings(max_examples=60, deadline=None)
@given(networks(), st.sampled_from(["float32", "float16"]), st.data())
def test_whatever_stays_fp32_the_cast_pass_leaves_nothing_to_refuse(model, handover, data) -> None:
    lifted = lift(model)
    assert type_faults(lifted) == []
    kept = data.draw(st.sets(st.sampled_from([node.name for node in lifted.graph.node])))
    assert type_faults(to_half(lifted, kept, handover)) == []


@settings(max_examples=40, deadline=None)
@given(networks(), st.data())
def test_a_cast_left_out_is_found(model, data) -> None:
    """The mistake that the cast pass could make: some tensor reaches its reader in the other precision."""
    lifted = lift(model)
    typed = to_half(lifted, [n.name for n in lifted.graph.node if n.op_type in ("MatMul", "Mul")], "float16")
    types = tensor_types(typed)
    # What is computed from the cast's output would change its type along with it, and fit again.
    fixed = {value.name for value in (*typed.graph.input, *typed.graph.initializer)}
    fixed |= {node.output[0] for node in typed.graph.node if node.op_type == "Cast"}

    def has_another_float(reader: onnx.NodeProto, cast: onnx.NodeProto) -> bool:
        others = [name for name in reader.input if name != cast.output[0] and name in fixed]
        return cast.output[0] in reader.input and any(types[name] in (F, H) for name in others)

    casts = [
        cast for cast in typed.graph.node
        if cast.op_type == "Cast" and any(has_another_float(reader, cast) for reader in typed.graph.node)
    ]  # fmt: skip
    assume(casts)
    gone = data.draw(st.sampled_from(casts))
    for reader in typed.graph.node:
        reader.input[:] = [gone.input[0] if name == gone.output[0] else name for name in reader.input]
    typed.graph.node.remove(gone)
    assert any("mixes the types" in fault.message for fault in type_faults(typed))


def test_every_op_of_the_table_exists_in_onnx_and_reads_known_types() -> None:
    for op, rule in RULES.items():
        schema = onnx.defs.get_schema(op)
        assert len(rule.roles) <= schema.max_input, op
        assert rule.types <= KNOWN
        assert set(rule.roles) <= set("binswx")
