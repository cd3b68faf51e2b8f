"""The user side ahead of time: two networks and two plans that give the scores of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from compiler_networks import USER_WIDTH, lift, networks, random_halves
from compiler_parts import Inputs, Made, column, head, keras_model
from hypothesis import assume, given, settings
from keras import layers

from bireme.ahead import make_marks
from bireme.compiler.ahead.frontier import TwoNetworks, cut_at_frontier
from bireme.compiler.ahead.half_plans import half_plan, needed_files
from bireme.compiler.ahead.user_ahead import Ahead, compile_user_ahead
from bireme.compiler.ahead.user_ahead_costs import add_to_report, saved_share
from bireme.compiler.ahead.user_ahead_timing import add_timing
from bireme.compiler.dense import runner
from bireme.compiler.pipeline import compile_model
from bireme.compiler.reporting.report import as_data
from bireme.compiler.rows.costs import flops_per_request
from bireme.errors import CompileError
from bireme.spec import BuildSpec
from bireme_runtime.plan import Feature, HashBucket, Numeric, Plan, Table

MARKS = (5, 2047, 0, 1024)
Zoo = Callable[[str], Any]  # conftest's Example
make = onnx.helper.make_node


def network(
    nodes: list[onnx.NodeProto], weights: dict[str, Any], user_width: int = 6, item_width: int = 3
) -> onnx.ModelProto:
    """A lifted dense network with one task, `score`."""
    value = onnx.helper.make_tensor_value_info
    fp32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "dense",
        [
            value("user", fp32, ["users", user_width]),
            value("items", fp32, ["users", "candidates", item_width]),
        ],
        [value("score", fp32, ["users", "candidates"])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def scores_of(cut: TwoNetworks, halves: dict[str, Any], state: str = "user_state") -> dict[str, Any]:
    ahead = runner(cut.user)({"user": halves["user"]})[state]
    assert ahead.dtype == np.float32
    assert ahead.shape == (len(halves["user"]), cut.width)
    np.testing.assert_array_equal(ahead[:, : len(MARKS)], np.tile(np.float32(MARKS), (len(ahead), 1)))
    return runner(cut.items)({state: ahead, "items": halves["items"]})


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@settings(max_examples=40, deadline=None)
@given(networks())
def test_two_networks_give_the_scores_of_one(rowwise: onnx.ModelProto) -> None:
    dense = lift(rowwise)
    try:
        cut = cut_at_frontier(dense, "user_state", MARKS)
    except CompileError:  # only if it reads nothing of the user
        assume(any("user" in node.input for node in dense.graph.node))
        raise
    assert "user" not in {value.name for value in cut.items.graph.input}
    for users, candidates in ((1, 1), (3, 7)):
        halves = random_halves(users, candidates)
        found = scores_of(cut, halves)
        for task, expected in runner(dense)(halves).items():
            np.testing.assert_allclose(
                found[task], expected, rtol=0, atol=1e-6 * max(1, np.abs(expected).max())
            )


def test_what_only_the_user_decides_is_not_computed_again() -> None:
    """A user tower of two layers ahead; one addition and one product are left."""
    rng = np.random.default_rng(0)
    tower = network(
        [
            make("Unsqueeze", ["user", "one"], ["u"]),
            make("MatMul", ["u", "w1"], ["a"]),
            make("Relu", ["a"], ["b"]),
            make("MatMul", ["b", "w2"], ["c"]),
            make("MatMul", ["items", "w3"], ["d"]),
            make("Add", ["c", "d"], ["e"]),
            make("ReduceSum", ["e", "last"], ["score"], keepdims=0),
        ],
        {
            "one": np.array([1]),
            "last": np.array([2]),
            "w1": rng.normal(size=(6, 50)).astype(np.float32),
            "w2": rng.normal(size=(50, 4)).astype(np.float32),
            "w3": rng.normal(size=(3, 4)).astype(np.float32),
        },
    )
    cut = cut_at_frontier(tower, "user_state", MARKS)
    assert cut.width == len(MARKS) + 4
    assert ops(cut.items).count("MatMul") == 1
    assert cut.nodes_ahead == 4
    assert flops_per_request(tower, 10) == 2 * (6 * 50 + 50 * 4 + 10 * 3 * 4)
    assert flops_per_request(cut.user, 10) == 2 * (6 * 50 + 50 * 4)
    assert flops_per_request(cut.items, 10) == 2 * 10 * 3 * 4
    halves = {"user": rng.normal(size=(2, 6)).astype(np.float32), "items": np.ones((2, 9, 3), np.float32)}
    np.testing.assert_allclose(scores_of(cut, halves)["score"], runner(tower)(halves)["score"], atol=1e-6)


def test_attention_keeps_the_history_its_mask_and_no_shapes() -> None:
    """Keys and a view of them, a bool mask, an Expand by Shape(items): the state holds each once."""
    rng = np.random.default_rng(1)
    attention = network(
        [
            make("Reshape", ["user", "history"], ["h"]),  # [users, 1, 2, 3]
            make("MatMul", ["h", "wk"], ["keys"]),
            make("ReduceSum", ["h", "last"], ["sums"], keepdims=0),
            make("Greater", ["sums", "zero"], ["mask"]),  # bool [users, 1, 2]
            make("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
            make("MatMul", ["items", "wq"], ["query"]),
            make("Unsqueeze", ["query", "two"], ["q"]),
            make("MatMul", ["q", "turned"], ["logits"]),  # [users, N, 1, 2]
            make("Squeeze", ["logits", "two"], ["flat"]),
            make("Where", ["mask", "flat", "low"], ["masked"]),
            make("Softmax", ["masked"], ["weights"], axis=-1),
            make("Unsqueeze", ["weights", "two"], ["w"]),
            make("Shape", ["items"], ["counts"], start=0, end=2),
            make("Shape", ["keys"], ["behind"], start=2),
            make("Concat", ["counts", "behind"], ["whole"], axis=0),
            make("Expand", ["keys", "whole"], ["per_candidate"]),
            make("MatMul", ["w", "per_candidate"], ["pooled"]),
            make("ReduceSum", ["pooled", "both"], ["score"], keepdims=0),
        ],
        {
            "history": np.array([0, 1, 2, 3]),
            "last": np.array([3]),
            "both": np.array([2, 3]),
            "two": np.array([2]),
            "zero": np.float32(0),
            "low": np.float32(-1e9),
            "wk": rng.normal(size=(3, 5)).astype(np.float32),
            "wq": rng.normal(size=(3, 5)).astype(np.float32),
        },
    )
    cut = cut_at_frontier(attention, "user_state", MARKS)
    assert sorted((piece.rest, piece.dtype) for piece in cut.pieces) == [
        ((1, 2), "bool"),
        ((1, 2, 5), "float32"),
    ]
    assert cut.width == len(MARKS) + 2 * 5 + 2
    for users, candidates in ((1, 1), (1, 8), (3, 5)):
        halves = {
            "user": rng.normal(size=(users, 6)).astype(np.float32),
            "items": rng.normal(size=(users, candidates, 3)).astype(np.float32),
        }
        found = scores_of(cut, halves)["score"]
        assert found.shape == (users, candidates)
        np.testing.assert_allclose(found, runner(attention)(halves)["score"], atol=1e-6)


def test_integers_are_not_kept_but_computed_again() -> None:
    """FP32 does not hold every int64: the index of the largest value is found again from the values."""
    pick = network(
        [
            make("ArgMax", ["user"], ["index"], axis=1, keepdims=1),
            make("Cast", ["index"], ["number"], to=onnx.TensorProto.INT32),
            make("ReduceMax", ["items"], ["best"], axes=[2], keepdims=0),
            make("Cast", ["best"], ["whole"], to=onnx.TensorProto.INT32),
            make("Add", ["whole", "number"], ["sum"]),
            make("Cast", ["sum"], ["score"], to=onnx.TensorProto.FLOAT),
        ],
        {},
    )
    cut = cut_at_frontier(pick, "user_state", MARKS)
    assert [(piece.rest, piece.dtype) for piece in cut.pieces] == [((6,), "float32")]
    assert "ArgMax" in ops(cut.items)
    user = np.eye(6, dtype=np.float32)[[4, 1]]
    halves = {"user": user, "items": np.full((2, 3, 3), 10, np.float32)}
    np.testing.assert_array_equal(scores_of(cut, halves)["score"], [[14] * 3, [11] * 3])


def test_half_precision_is_handed_over_in_fp32() -> None:
    """ONNX Runtime leaves out casts to FP16 and back where it likes, so FP16's own error is allowed."""
    half = lift_half()
    cut = cut_at_frontier(half, "user_state", MARKS)
    rng = np.random.default_rng(2)
    halves = {
        "user": rng.normal(size=(2, USER_WIDTH)).astype(np.float16),
        "items": random_halves(2, 5)["items"].astype(np.float16),
    }
    for task, expected in runner(half)(halves).items():
        np.testing.assert_allclose(scores_of(cut, halves)[task], expected, rtol=0, atol=5e-3)
    assert [piece.dtype for piece in cut.pieces] == ["float16"]


def lift_half() -> onnx.ModelProto:
    """`user` FP16 straight into a product with `items` FP16: the frontier is FP16."""
    fp16, value = onnx.TensorProto.FLOAT16, onnx.helper.make_tensor_value_info
    item_width = random_halves(1, 1)["items"].shape[-1]
    weights = {
        "wu": np.random.default_rng(3).normal(size=(USER_WIDTH, item_width)).astype(np.float16),
        "one": np.array([1]),
        "last": np.array([2]),
    }
    graph = onnx.helper.make_graph(
        [
            make("MatMul", ["user", "wu"], ["row"]),
            make("Unsqueeze", ["row", "one"], ["u"]),
            make("Mul", ["u", "items"], ["products"]),
            make("Cast", ["products"], ["wide"], to=onnx.TensorProto.FLOAT),
            make("ReduceSum", ["wide", "last"], ["score"], keepdims=0),
        ],
        "dense",
        [
            value("user", fp16, ["users", USER_WIDTH]),
            value("items", fp16, ["users", "candidates", item_width]),
        ],
        [value("score", onnx.TensorProto.FLOAT, ["users", "candidates"])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_nothing_of_the_user_is_refused() -> None:
    alone = network([make("ReduceMax", ["items"], ["score"], axes=[2], keepdims=0)], {})
    with pytest.raises(CompileError, match="finds nothing of the user"):
        cut_at_frontier(alone, "user_state", MARKS)


# Plans


def plan_with_a_cross() -> Plan:
    """The item side reads a user feature by way of a step of the user's."""
    return Plan(
        model="shop",
        features=(
            Feature("age", "user", "float32"),
            Feature("city", "user", "string"),
            Feature("price", "item", "float32"),
        ),
        tables=(Table("cities", "a.bin", "float32", 4, 0, 9), Table("other", "a.bin", "float32", 4, 9, 2)),
        steps=(
            HashBucket("city.hash", "city", 9),
            Numeric("age.0", "age", (("log1p", None),), "user", 0),
            Numeric("price.1", "price", (), "item", 0),
            Cross("cross.2", ("city.hash", "price"), "cities", "item", 1, 4),
        ),
        user_width=1,
        item_width=5,
        handover="float32",
        buckets=(8,),
        pad=True,
    )


@dataclasses.dataclass(frozen=True)
class Cross:
    """A step of two sources, of a kind that the halves have not been told about."""

    name: str
    sources: tuple[str, ...]
    table: str
    side: str
    offset: int
    width: int
    op: str = "cross"


def test_a_cross_takes_its_user_features_to_the_items() -> None:
    plan = plan_with_a_cross()
    user, items = half_plan(plan, "user", "shop_user"), half_plan(plan, "item", "shop_slice")
    assert [feature.name for feature in user.features] == ["age"]
    assert [step.name for step in user.steps] == ["age.0"]
    assert (user.user_width, user.item_width, user.pad, user.tables) == (1, 0, False, ())
    assert [feature.name for feature in items.features] == ["city", "price"]
    assert [step.name for step in items.steps] == ["city.hash", "price.1", "cross.2"]
    # An arena is one file, so its tables stay together.
    assert [table.name for table in items.tables] == ["cities", "other"]
    assert (items.user_width, items.item_width, items.pad, items.model) == (0, 5, True, "shop_slice")
    assert needed_files(items, ["a.bin", "b.bin"]) == ("a.bin",)
    assert needed_files(user, ["a.bin", "b.bin"]) == ()


# Whole models


@pytest.mark.parametrize("name", ["architectures", "sequences", "clashing_names", "plain_tensorflow"])
def test_models_of_the_zoo(zoo: Zoo, name: str) -> None:
    """The pass compares the scores of all its samples itself."""
    example = zoo(name)
    ahead = compile_user_ahead(example.compiled, example.spec)
    assert ahead.difference <= 1e-6
    assert ahead.parts.state not in {f.name for f in example.compiled.plan.features}
    halves = {f.name for f in (*ahead.parts.user_plan.features, *ahead.parts.slice_plan.features)}
    assert halves == {f.name for f in example.compiled.plan.features}


def test_a_model_with_a_cross_of_user_and_item(export: Callable[[Made], BuildSpec]) -> None:
    inputs = Inputs()
    city, kind, age = inputs("city", "string"), inputs("kind", "string"), inputs("age", "float32")
    crossed = layers.Embedding(50, 4)(layers.HashedCrossing(50)((city, kind)))
    both = layers.Concatenate()([crossed, column(age), layers.Embedding(9, 3)(layers.Hashing(9)(kind))])
    hidden = layers.Dense(6, activation="relu")(both)
    made = Made(keras_model(inputs, {"click": head(hidden, "click")}), ("city", "age"))
    spec = export(made)
    ahead = compile_user_ahead(compile_model(spec, "cpu"), spec)
    assert ahead.difference <= 1e-6
    assert [feature.name for feature in ahead.parts.user_plan.features] == ["age"]
    assert {f.name: f.side for f in ahead.parts.slice_plan.features} == {"city": "user", "kind": "item"}


def test_a_wrong_half_stops_the_build(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*arguments: Any) -> TwoNetworks:
        cut = cut_at_frontier(*arguments)
        for weight in cut.user.graph.initializer:
            if weight.data_type == onnx.TensorProto.FLOAT and len(weight.dims) == 2 and weight.dims[0] > 1:
                array = onnx.numpy_helper.to_array(weight) + np.float32(0.01)
                weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
        return cut

    monkeypatch.setattr("bireme.compiler.ahead.user_ahead.cut_at_frontier", damaged)
    example = zoo("architectures")
    with pytest.raises(CompileError, match=r"pass user_ahead, output .* differs from the original model"):
        compile_user_ahead(example.compiled, example.spec)


@pytest.fixture(scope="module")
def ahead(zoo: Zoo) -> Ahead:
    example = zoo("architectures")
    return compile_user_ahead(example.compiled, example.spec)


def test_marks_tell_builds_apart(zoo: Zoo, ahead: Ahead) -> None:
    example = zoo("architectures")
    assert compile_user_ahead(example.compiled, example.spec).parts == ahead.parts
    source = {**example.compiled.source, "saved_model_sha256": "of another training"}
    other = compile_user_ahead(dataclasses.replace(example.compiled, source=source), example.spec)
    assert other.parts.marks != ahead.parts.marks
    assert make_marks([b"ab", b"c"]) != make_marks([b"a", b"bc"])
    # FP16 holds them, whatever the engine computes in.
    assert all(np.float16(mark) == mark for mark in (*ahead.parts.marks, 2047))


def test_the_report_counts_both_halves(zoo: Zoo, ahead: Ahead) -> None:
    compiled = zoo("architectures").compiled
    report = as_data(compiled)
    add_to_report(report, compiled, ahead)
    section = report["user_ahead"]
    counts = section["counts"]
    assert section["candidates"] == compiled.plan.buckets[-1] == 64
    for key in ("feature_values", "flops"):
        assert counts["one_shot"][key] == counts["user"][key] + counts["slice"][key]
    assert counts["one_shot"]["flops"] == flops_per_request(compiled.dense, 64)
    one_shot, user, piece = (counts[part]["flops"] for part in ("one_shot", "user", "slice"))
    assert section["saved"]["flops"] == pytest.approx(1 - (user + 10 * piece) / (10 * one_shot))
    assert section["state_bytes"] == 4 * ahead.parts.width
    assert report["passes"][-1]["pass"] == "user_ahead"


def test_the_timing_is_of_every_part(zoo: Zoo, ahead: Ahead) -> None:
    compiled = zoo("architectures").compiled
    section: dict[str, Any] = {"candidates": 64, "slices": 10, "saved": {}}
    add_timing(section, compiled, ahead)
    times = section["cpu_milliseconds"]
    assert all(times[part][kind] > 0 for part in times for kind in ("transforms", "dense"))
    totals = {part: sum(kinds.values()) for part, kinds in times.items()}
    assert section["saved"]["cpu_milliseconds"] == pytest.approx(saved_share(totals, 10))


def test_saved_share() -> None:
    assert saved_share({"one_shot": 10, "user": 4, "slice": 6}, 10) == pytest.approx(1 - 64 / 100)
    assert saved_share({"one_shot": 0, "user": 0, "slice": 0}, 10) == 0
    assert saved_share({"one_shot": 10, "user": 10, "slice": 10}, 1) == pytest.approx(-1)
