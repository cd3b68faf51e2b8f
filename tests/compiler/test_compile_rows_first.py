"""rows_first changes no value for any number of rows, whatever detours the rows take."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.compiler.dense import runner
from bireme.compiler.rows.row_dims import Dim, Rows, Sizes, evaluate, resolve
from bireme.compiler.rows.rows_first import rows_first

Shape = list[Dim]


class Detour:
    """A network of one input x [rows, 4, 6] whose last tensor is the output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.last = "x"
        self.shape: Shape = [Rows(1), 4, 6]

    def weight(self, values: object, kind: type = np.int64) -> str:
        self.weights.append(onnx.numpy_helper.from_array(np.array(values, kind), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op: str, inputs: list[str], shape: Shape, **attributes: object) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, inputs, [name], name=name, **attributes))
        self.last, self.shape = name, shape

    def reshape(self, shape: Shape) -> None:
        target = [-1 if isinstance(size, Rows) else size for size in shape]
        self.add("Reshape", [self.last, self.weight(target)], shape)

    @property
    def axis(self) -> int:
        return next(axis for axis, size in enumerate(self.shape) if isinstance(size, Rows))

    def model(self) -> onnx.ModelProto:
        nodes = [*self.nodes, onnx.helper.make_node("Identity", [self.last], ["score"])]
        x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 4, 6])
        out = onnx.helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, [None] * len(self.shape))
        graph = onnx.helper.make_graph(nodes, "rowwise", [x], [out], self.weights)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def merged(a: Dim, b: Dim) -> Dim:
    if isinstance(a, Rows) or isinstance(b, Rows):
        return Rows((a.times if isinstance(a, Rows) else a) * (b.times if isinstance(b, Rows) else b))
    return a * b


@st.composite
def detours(draw: st.DrawFn) -> Detour:
    net = Detour()
    for op in draw(
        st.lists(
            st.sampled_from(
                ["turn", "turn", "join", "join", "part", "scale", "dense", "left", "gemm", "along", "both"]
            ),
            min_size=1,
            max_size=9,
        )
    ):
        shape, rank, axis = net.shape, len(net.shape), net.axis
        other = draw(st.sampled_from([a for a in range(rank) if a != axis] or [axis]))
        if op == "turn":
            order = draw(st.permutations(range(rank)))
            net.add("Transpose", [net.last], [shape[a] for a in order], perm=list(order))
        elif op == "join" and rank > 1:
            first = draw(st.integers(0, rank - 2))
            net.reshape([*shape[:first], merged(shape[first], shape[first + 1]), *shape[first + 2 :]])
        elif op == "part":
            size = shape[other]
            if isinstance(size, Rows):
                factors = [size.times, Rows(1)] if draw(st.booleans()) else [Rows(1), size.times]
                net.reshape(factors)
            elif size % 2 == 0:
                net.reshape([*shape[:other], *draw(st.permutations([2, size // 2])), *shape[other + 1 :]])
        elif op == "scale" and other != axis:
            sizes = [size if a == other else 1 for a, size in enumerate(shape)]
            values = np.linspace(-1, 1, prod(sizes)).reshape(sizes)
            net.add("Mul", [net.last, net.weight(values, np.float32)], shape)
        elif op == "dense" and axis != rank - 1:
            values = np.linspace(-1, 1, shape[-1] * 3).reshape(shape[-1], 3)
            net.add("MatMul", [net.last, net.weight(values, np.float32)], [*shape[:-1], 3])
        elif op == "left" and rank > 1 and axis != rank - 2:
            values = np.linspace(-1, 1, shape[-2] * 2).reshape(2, shape[-2])
            net.add("MatMul", [net.weight(values, np.float32), net.last], [*shape[:-2], 2, shape[-1]])
        elif op == "gemm" and rank == 2:
            values, across = np.linspace(-1, 1, shape[1 - axis] * 2).reshape(2, -1), draw(st.booleans())
            weights = net.weight(values.T if across else values, np.float32)
            turn = {"transA": int(across), "transB": int(axis == 0)}
            net.add("Gemm", [weights, net.last], [2, shape[axis]], alpha=0.5, **turn)
        elif op == "along" and other != axis:
            net.add("Softmax", [net.last], shape, axis=other - draw(st.sampled_from([0, rank])))
        elif op == "both" and rank < 5:
            place = draw(st.integers(0, rank - 1))
            size = shape[place]
            doubled = Rows(2 * size.times) if isinstance(size, Rows) else 2 * size
            net.add(
                "Concat", [net.last, net.last], [*shape[:place], doubled, *shape[place + 1 :]], axis=place
            )
    return net


@settings(max_examples=150, deadline=None)
@given(detours())
def test_no_value_changes(net):
    model = net.model()
    before, after = runner(model), runner(rows_first(model, []))
    for rows in (1, 2, 5):
        x = np.random.default_rng(rows).normal(size=(rows, 4, 6)).astype(np.float32)
        wanted, found = before({"x": x})["score"], after({"x": x})["score"]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * max(1, np.abs(wanted).max()))


def test_a_detour_and_back_leaves_plain_ops():
    net = Detour()
    net.add("Transpose", ["x"], [4, Rows(), 6], perm=[1, 0, 2])
    net.reshape([Rows(4), 6])
    net.add("MatMul", [net.last, net.weight(np.eye(6, 2), np.float32)], [Rows(4), 2])
    net.reshape([4, Rows(), 2])
    net.add("Transpose", [net.last], [Rows(), 4, 2], perm=[1, 0, 2])
    nodes = rows_first(net.model(), []).graph.node
    assert [node.op_type for node in nodes] == ["MatMul", "Identity"]
    assert nodes[0].doc_string == "t2"


@pytest.mark.parametrize("axis", range(-3, 4))
def test_flatten_counts_axes_from_either_end(axis):
    net = Detour()
    net.add("Transpose", ["x"], [4, Rows(), 6], perm=[1, 0, 2])
    net.add("Flatten", [net.last], [Rows(), Rows()], axis=axis)
    model = net.model()
    for rows in (1, 2, 4):
        x = np.random.default_rng(rows).normal(size=(rows, 4, 6)).astype(np.float32)
        wanted = runner(model)({"x": x})["score"]
        np.testing.assert_array_equal(runner(rows_first(model, []))({"x": x})["score"], wanted)


def mask_of(net: Detour, mask: np.ndarray) -> None:
    """As tf2onnx writes `boolean_mask(x, mask & ones_like(x))`, x [rows, 4, 6]; then k columns a row."""
    net.add("Sub", ["x", "x"], net.shape)
    net.add("Shape", [net.last], [3])
    net.add(
        "ConstantOfShape",
        [net.last],
        [Rows(), 4, 6],
        value=onnx.numpy_helper.from_array(np.ones(1, np.float32)),
    )
    net.add("Mul", [net.last, net.weight(mask, np.float32)], [Rows(), 4, 6])
    net.reshape([Rows(24)])
    net.add("NonZero", [net.last], [1, Rows()])
    net.add("Transpose", [net.last], [Rows(), 1], perm=[1, 0])
    net.add("Squeeze", [net.last, net.weight([1])], [Rows()])
    places = net.last
    net.add("Reshape", ["x", net.weight([-1])], [Rows(24)])
    net.add("Gather", [net.last, places], [Rows()], axis=0)
    net.reshape([Rows(), int(mask.sum())])


def test_a_mask_that_is_the_same_in_every_row_picks_the_same_columns():
    mask = np.random.default_rng(5).random((4, 6)) < 0.4
    net = Detour()
    mask_of(net, mask)
    model = rows_first(net.model(), [])
    assert [node.op_type for node in model.graph.node] == ["Reshape", "Gather", "Identity"]
    x = np.random.default_rng(6).normal(size=(3, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(runner(model)({"x": x})["score"], x[:, mask])
    np.testing.assert_array_equal(runner(net.model())({"x": x})["score"], x[:, mask])


def test_weights_times_rows_become_rows_times_weights():
    net = Detour()
    net.reshape([Rows(), 24])
    net.add("Gemm", [net.weight(np.eye(5, 24), np.float32), net.last], [5, Rows()], transB=1)
    net.add("Transpose", [net.last], [Rows(), 5], perm=[1, 0])
    nodes = rows_first(net.model(), []).graph.node
    assert [node.op_type for node in nodes] == ["Reshape", "MatMul", "Identity"]


@pytest.mark.parametrize(
    ("wanted", "shape", "made"),
    [
        ([-1, 24], [Rows(), 4, 6], [Rows(), 24]),
        ([0, -1], [Rows(), 4, 6], [Rows(), 24]),
        ([-1, 6], [Rows(), 4, 6], [Rows(4), 6]),
        ([4, -1, 6], [Rows(4), 6], [4, Rows(), 6]),
        ([Rows(), -1], [Rows(), 4, 6], [Rows(), 24]),
        ([Rows(2), -1, 6], [Rows(), 4, 6], [Rows(2), 2, 6]),
        ([5, -1], [Rows(), 4, 6], None),
        ([Rows(), 5], [Rows(), 4, 6], None),
        ([7, 0], [Rows(), 4, 6], None),
    ],
)
def test_reshape(wanted, shape, made):
    assert resolve(wanted, shape) == made


def sizes(*values: Dim) -> Sizes:
    array = np.empty(len(values), object)
    array[:] = values
    return Sizes(array, np.int64)


@pytest.mark.parametrize(
    ("op", "inputs", "made"),
    [
        ("Mul", [sizes(Rows(2)), sizes(3)], [Rows(6)]),
        ("Mul", [sizes(Rows()), sizes(Rows())], None),
        ("Add", [sizes(Rows()), sizes(1)], None),
        ("Add", [sizes(Rows()), sizes(0)], [Rows()]),
        ("Sub", [sizes(Rows()), sizes(Rows())], [0]),
        ("Div", [sizes(Rows(6)), sizes(4)], None),
        ("Div", [sizes(Rows(6)), sizes(Rows(2))], [3]),
        ("Max", [sizes(Rows()), sizes(1)], [Rows()]),
        ("Max", [sizes(Rows()), sizes(2)], None),
        ("Concat", [sizes(Rows(), 4), sizes(-1)], [Rows(), 4, -1]),
        ("Gather", [sizes(Rows(), 4, 6), sizes(2, 0)], [6, Rows()]),
        ("ReduceProd", [sizes(Rows(), 4, 6)], [Rows(24)]),
        ("Slice", [sizes(Rows(), 4, 6), sizes(1), sizes(3)], [4, 6]),
        ("Sqrt", [sizes(4)], None),
    ],
)
def test_sizes(op, inputs, made):
    found = evaluate(onnx.helper.make_node(op, ["a"], ["b"]), inputs, {}, None)
    assert (None if found is None else list(found.values)) == made
