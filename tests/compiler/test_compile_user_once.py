"""Pass user_once: equal scores for any users and candidates, less work, and no op that mixes candidates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from compiler_networks import (
    ITEM_WIDTH,
    Network,
    lift,
    networks,
    random_halves,
    rowwise_scores,
    value_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.compiler.cut.split import Boundary
from bireme.compiler.dense import runner
from bireme.compiler.rows.costs import flops_per_request
from bireme.compiler.rows.user_once import user_once
from bireme.errors import CompileError


@settings(max_examples=120, deadline=None)
@given(networks(), st.integers(1, 4), st.integers(1, 5))
def test_lifted_scores_equal_rowwise_scores(model, users, candidates):
    onnx.checker.check_model(model, full_check=True)
    halves = random_halves(users, candidates)
    wanted = rowwise_scores(runner(model), halves)
    run = runner(lift(model))
    found = run(halves)
    for task, scores in wanted.items():
        assert found[task].dtype == np.float32
        np.testing.assert_allclose(found[task], scores, rtol=1e-4, atol=1e-4)
    # Users know nothing of each other: any of them alone gets what it got among others.
    alone = run({"user": halves["user"][-1:], "items": halves["items"][-1:]})
    for task in wanted:
        np.testing.assert_allclose(alone[task][0], found[task][-1], rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    networks(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.sampled_from([0.0, 1e30, np.nan])
)
def test_padding_rows_never_change_real_rows(model, users, candidates, padding, content):
    halves = random_halves(users, candidates)
    run = runner(lift(model))
    filler = np.random.default_rng(1).normal(size=(users, padding, ITEM_WIDTH)).astype(np.float32)
    filler[:, ::2] = content
    padded = run({"user": halves["user"], "items": np.concatenate([halves["items"], filler], axis=1)})
    for task, scores in run(halves).items():
        np.testing.assert_allclose(padded[task][:, :candidates], scores, rtol=1e-5, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(networks())
def test_half_precision_hand_over_only_rounds_the_inputs(model):
    halves = {name: value.astype(np.float16) for name, value in random_halves(2, 3).items()}
    lifted = lift(model, "float16")
    assert {value.type.tensor_type.elem_type for value in lifted.graph.input} == {onnx.TensorProto.FLOAT16}
    found = runner(lifted)(halves)
    exact = {name: value.astype(np.float32) for name, value in halves.items()}
    for task, scores in rowwise_scores(runner(model), exact).items():
        np.testing.assert_allclose(found[task], scores, rtol=1e-4, atol=1e-4)


def two_layers(net: Network) -> onnx.ModelProto:
    mixed = net.add("Concat", ["i", "u"], (7,), axis=1)
    hidden = net.add("Relu", [net.add("Gemm", [mixed, net.normal(7, 16), net.normal(16)], (16,))], (16,))
    return net.model(score=net.add("MatMul", [hidden, net.normal(16, 1)], (1,)))


def test_the_user_part_of_the_first_layer_is_computed_once():
    model = two_layers(Network())
    lifted = lift(model)
    for candidates in (1, 100):
        assert flops_per_request(model, candidates) == 2 * candidates * (7 * 16 + 16)
        assert flops_per_request(lifted, candidates) == 2 * (3 * 16 + candidates * (4 * 16 + 16))


def test_the_bias_is_added_on_the_user_side():
    lifted = lift(two_layers(Network()))
    inferred = onnx.shape_inference.infer_shapes(lifted)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in inferred.graph.value_info}
    weights = {weight.name for weight in lifted.graph.initializer}
    biased = [n for n in lifted.graph.node if n.op_type == "Add" and weights & set(n.input)]
    assert len(biased) == 1
    assert shapes[biased[0].output[0]][1] == 1


def test_neighbouring_columns_are_read_as_one():
    """Where a concat holds all columns of a side in their order, the input is used as it is."""
    boundaries = [
        Boundary("u", "", "user", 0, 2, (2,), ""),
        Boundary("v", "", "user", 2, 4, (4,), ""),
        Boundary("i", "", "item", 0, 3, (3,), ""),
        Boundary("j", "", "item", 3, 4, (4,), ""),
    ]
    nodes = [
        onnx.helper.make_node("Concat", ["u", "i", "v", "j"], ["all"], axis=1),
        onnx.helper.make_node("MatMul", ["all", "w"], ["score"]),
    ]
    weights = np.arange(13, dtype=np.float32)[:, None]
    graph = onnx.helper.make_graph(
        nodes,
        "rowwise",
        [value_of(boundary.name, boundary.shape) for boundary in boundaries],
        [value_of("score", (1,))],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    lifted = user_once(model, boundaries, 6, ITEM_WIDTH, "float32")
    assert not {"Slice", "Concat", "Expand"} & {node.op_type for node in lifted.graph.node}
    halves = random_halves(2, 3)
    halves["user"] = halves["user"][:, :6]
    wanted = (
        halves["user"] @ weights[[0, 1, 5, 6, 7, 8]]
        + (halves["items"] @ weights[[2, 3, 4, 9, 10, 11, 12]])[..., 0]
    )
    np.testing.assert_allclose(runner(lifted)(halves)["score"], wanted, rtol=1e-4)


def test_user_side_score_is_the_same_for_all_candidates():
    net = Network()
    model = net.model(score=net.add("MatMul", ["u", net.normal(3, 1)], (1,)), plain="age", price_too="price")
    halves = random_halves(3, 4)
    found = runner(lift(model))(halves)
    assert found["score"].shape == (3, 4)
    assert np.ptp(found["score"], axis=1).max() == 0
    assert np.ptp(found["score"], axis=0).min() > 0
    np.testing.assert_array_equal(found["plain"], np.repeat(halves["user"][:, 5:6], 4, axis=1))
    np.testing.assert_array_equal(found["price_too"], halves["items"][..., 6])


@pytest.mark.parametrize("op", ["Round", "Sin", "Softsign", "Erf", "Abs", "Exp", "Elu", "Softplus"])
def test_ops_on_single_numbers(op):
    net = Network()
    both = net.add(
        "Mul", ["u", net.add("Slice", ["i", *(net.weight(np.array([k])) for k in (0, 3, 1))], (3,))], (3,)
    )
    model = net.model(
        score=net.add("ReduceSum", [net.add(op, [both], (3,)), net.weight(np.array([1]))], (1,))
    )
    halves = random_halves(2, 3)
    wanted = rowwise_scores(runner(model), halves)["score"]
    np.testing.assert_allclose(runner(lift(model))(halves)["score"], wanted, atol=1e-5)


def test_tiled_columns():
    net = Network()
    tiled = net.add("Tile", ["u", net.weight(np.array([1, 4]))], (12,))
    model = net.model(score=net.add("MatMul", [tiled, net.normal(12, 1)], (1,)))
    halves = random_halves(3, 2)
    wanted = rowwise_scores(runner(model), halves)["score"]
    np.testing.assert_allclose(runner(lift(model))(halves)["score"], wanted, atol=1e-5)


def test_lifting_twice_gives_equal_bytes():
    model = two_layers(Network())
    assert lift(model).SerializeToString(deterministic=True) == lift(model).SerializeToString(
        deterministic=True
    )


def test_tasks_may_be_named_like_inner_tensors():
    net = Network()
    score = net.add("MatMul", ["i", net.normal(4, 1)], (1,))
    names = ["v0", "v1", "c0", "c1", "t0", "t1", "w0", "w1", "cut_0"]
    model = net.model(**dict.fromkeys(names, score))
    halves = random_halves(2, 3)
    found = runner(lift(model))(halves)
    assert list(found) == names
    wanted = rowwise_scores(runner(model), halves)["v0"]
    for name in names:
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6)


ROWS = np.array([0])
MIXING: dict[str, Callable[[Network], str]] = {
    "Softmax": lambda n: n.add("Softmax", ["i"], (4,), axis=0),
    "LogSoftmax": lambda n: n.add("LogSoftmax", ["price"], (), axis=-1),
    "ReduceSum": lambda n: n.add("ReduceSum", ["i", n.weight(ROWS)], (4,), keepdims=1),
    "ReduceMean": lambda n: n.add("ReduceMean", ["i"], (1,)),
    "ReduceMax": lambda n: n.add("ReduceMax", ["j"], (1, 2), axes=[-3], keepdims=1),
    "Transpose": lambda n: n.add("Transpose", ["i"], (0,), perm=[1, 0]),
    "Reshape": lambda n: n.add("Reshape", ["i", n.weight(np.array([-1, 2]))], (2,)),
    "Concat": lambda n: n.add("Concat", ["i", "i"], (4,), axis=0),
    "Squeeze": lambda n: n.add("Squeeze", ["i"], ()),
    "Unsqueeze": lambda n: n.add("Unsqueeze", ["price", n.weight(ROWS)], (0,)),
    "Slice": lambda n: n.add("Slice", ["i", *(n.weight(np.array([k])) for k in (1, 2**31 - 1, 0))], (4,)),
    "CumSum": lambda n: n.add("CumSum", ["i", n.weight(np.array(0))], (4,)),
    "Gather": lambda n: n.add("Gather", ["i", n.weight(np.array([0, 0]))], (4,), axis=0),
    "Expand": lambda n: n.add("Expand", ["i", n.weight(np.array([3, 4]))], (4,)),
    "Shape": lambda n: n.add("Cast", [n.add("Shape", ["i"], ())], (), to=onnx.TensorProto.FLOAT),
    "MatMul": lambda n: n.add("MatMul", [n.normal(3, 5), "i"], (4,)),
    "Gemm": lambda n: n.add("Gemm", ["i", n.normal(5, 2)], (2,), transA=1),
    "Add": lambda n: n.add("Add", ["price", "i"], (4,)),
    "Mul": lambda n: n.add("Mul", ["i", n.normal(5, 4)], (4,)),
    "Sub": lambda n: n.add("Sub", ["j", n.add("MatMul", ["i", n.normal(4, 2)], (2,))], (0, 2)),
    "Where": lambda n: n.add("Where", [n.weight(np.array([[True], [False]])), "i", "i"], (4,)),
    "Tile": lambda n: n.add("Tile", ["i", n.weight(np.array([2, 1]))], (4,)),
    "Clip": lambda n: n.add("Clip", ["i", "", n.normal()], (4,)),
    "PRelu": lambda n: n.add("PRelu", ["u", n.add("Tanh", ["u"], (3,))], (3,)),
    "Flatten": lambda n: n.add("Flatten", ["price"], (0,), axis=-1),
}


@pytest.mark.parametrize("op", MIXING)
def test_op_that_mixes_rows_is_refused_by_name(op):
    net = Network()
    made = MIXING[op](net)
    model = net.model(score=net.add("Identity", [made], net.rests[made]))
    with pytest.raises(CompileError) as caught:
        lift(model)
    assert caught.value.where.startswith(f"op {op} (node 'my_{op}_")


def test_tensor_of_unknown_rank_is_refused():
    """It is not taken for one number a row: here it is [1, rows], and the sum would mix candidates."""
    net = Network()
    target = net.add("Cast", [net.add("Cast", ["price"], (), to=6)], (), to=7)
    turned = net.add("Reshape", ["price", target], ())
    model = net.model(score=net.add("Add", [turned, "price"], ()))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(CompileError, match="op Reshape"):
        lift(model)


def test_constant_that_adds_a_dimension_in_front_is_refused():
    """[rows, w] + [1, 1, w] is [1, rows, w]: the rows are no longer where everything expects them."""
    net = Network()
    mixed = net.add("MatMul", [net.add("Concat", ["u", "i"], (7,), axis=1), net.normal(7, 4)], (4,))
    made = net.add("Add", [mixed, net.normal(1, 1, 4)], (0, 4))
    with pytest.raises(CompileError, match="op Add"):
        lift(net.model(score=net.add("ReduceMean", [made], (0,), axes=[-1], keepdims=0)))
