"""Subgraph steps: pieces of the model on other engines, for requests of any form in one batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme_runtime.engines import open_engine
from bireme_runtime.pieces import SubgraphInput, SubgraphOutput
from bireme_runtime.plan import (
    Embed,
    Feature,
    Mask,
    Plan,
    Subgraph,
    Table,
)
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.requests import RequestError

FEATURES = (
    Feature("base", "user", "int64"),
    Feature("seen", "user", "int64", -1),
    Feature("code", "item", "int64"),
)
PIECE = Subgraph(
    "onnx_item",
    "onnx",
    "piece.onnx",
    "item",
    (SubgraphInput("b", "base", 1), SubgraphInput("s", "seen", 2), SubgraphInput("c", "code", 2)),
    (
        SubgraphOutput("one", "one", "base, code"),
        SubgraphOutput("many", "many", "base, seen"),
        SubgraphOutput("root", "", "code", 0, 1),
    ),
)
STEPS = (
    PIECE,
    Embed("rows", "one", "table", "item", 1, 2),
    Embed("pooled", "many", "table", "item", 3, 2, "sum", Mask("many", 0)),
)
TABLES = (Table("table", "arena.bin", "float32", 2, 0, 1000),)
PLAN = Plan("m", FEATURES, TABLES, STEPS, 0, 5, "float32", (8,), pad=False)
ROWS = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)


def write_piece(path: Path) -> None:
    """one = base + code, many = base + seen, root = sqrt(code)."""
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto
    node = onnx.helper.make_node
    axis = np.ones(1, np.int64)
    nodes = [
        node("Squeeze", ["c", "axis"], ["flat"]),
        node("Add", ["b", "flat"], ["one"]),
        node("Unsqueeze", ["b", "axis"], ["column"]),
        node("Add", ["column", "s"], ["many"]),
        node("Cast", ["c"], ["number"], to=kind.FLOAT),
        node("Sqrt", ["number"], ["root"]),
    ]
    inputs = [
        info("b", kind.INT64, ["r"]),
        info("s", kind.INT64, ["r", "l"]),
        info("c", kind.INT64, ["r", 1]),
    ]
    outputs = [
        info("one", kind.INT64, ["r"]),
        info("many", kind.INT64, ["r", "l"]),
        info("root", kind.FLOAT, ["r", 1]),
    ]
    weights = [onnx.numpy_helper.from_array(axis, "axis")]
    graph = onnx.helper.make_graph(nodes, "piece", inputs, outputs, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    (folder / "plan.json").write_text(PLAN.to_json(), encoding="utf-8")
    (folder / "arena.bin").write_bytes(ROWS.tobytes())
    write_piece(folder / "piece.onnx")
    return Preprocessor.open(folder)


def request(seed: int, users: int, candidates: int, seen: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "base": rng.integers(0, 9, (users, 1)),
        "seen": rng.integers(0, 9, (users, seen)),
        "code": rng.integers(0, 9, (users, candidates)),
    }


def slowly(tensors: dict[str, np.ndarray]) -> np.ndarray:
    users, candidates = tensors["code"].shape
    items = np.zeros((users, candidates, 5), np.float32)
    for u in range(users):
        base = int(tensors["base"][u, 0])
        many = [base + int(seen) for seen in tensors["seen"][u]]
        pooled = sum((ROWS[i] for i in many if i != 0), np.zeros(2, np.float32))
        for n in range(candidates):
            code = int(tensors["code"][u, n])
            items[u, n] = [np.sqrt(np.float32(code)), *ROWS[base + code], *pooled]
    return items


SIZES = st.tuples(st.integers(0, 99), st.integers(1, 3), st.integers(1, 8), st.integers(0, 4))


@settings(max_examples=60)
@given(st.lists(SIZES, min_size=1, max_size=5))
def test_a_batch_of_any_requests_gives_what_loops_give(preprocessor, sizes) -> None:
    requests = [request(*size) for size in sizes]
    for tensors, result in zip(requests, preprocessor.run(requests), strict=True):
        assert isinstance(result, Features)
        np.testing.assert_allclose(result.items, slowly(tensors), atol=1e-5)


def test_a_request_that_the_piece_cannot_take_fails_alone(preprocessor) -> None:
    requests = [request(0, 1, 3, 2), request(1, 1, 2, 2), request(2, 2, 3, 1)]
    requests[1]["code"][0, 1] = -4
    results = preprocessor.run(requests)
    assert isinstance(results[1], RequestError)
    assert "'code'" in str(results[1])
    assert "candidate 1" in str(results[1])
    for index in (0, 2):
        np.testing.assert_allclose(results[index].items, slowly(requests[index]), atol=1e-5)


def test_an_id_beyond_the_table_names_what_it_was_made_of(preprocessor) -> None:
    bad = request(0, 1, 2, 1)
    bad["code"][0, 0] = 5000
    (result,) = preprocessor.run([bad])
    assert isinstance(result, RequestError)
    assert "'base, code'" in str(result)
    assert "candidate 0" in str(result)


def test_an_engine_that_fails_on_one_request_leaves_the_others(tmp_path) -> None:
    def engine(feeds):
        if (feeds["b"] == 7).any():
            raise RuntimeError("seven\nis too much")
        return {"one": feeds["b"], "many": feeds["s"], "root": np.ones((len(feeds["b"]), 1), np.float32)}

    whole = Preprocessor(PLAN, {"arena.bin": ROWS}, {}, {"piece.onnx": engine})
    requests = [request(seed, 1, 2, 3) for seed in range(3)]
    for index, tensors in enumerate(requests):
        tensors["base"][:] = 7 if index == 1 else 1
    results = whole.run(requests)
    assert str(results[1]) == "feature 'base, code, seen', candidate 0: the value fails: seven is too much"
    assert isinstance(results[0], Features)
    assert isinstance(results[2], Features)


@pytest.mark.parametrize("position", [0, 3, 6])
def test_the_candidate_that_an_engine_fails_on_is_found(position) -> None:
    def engine(feeds):
        if (feeds["c"] == 7).any():
            raise RuntimeError("seven")
        return {"one": feeds["b"], "many": feeds["s"], "root": np.ones((len(feeds["b"]), 1), np.float32)}

    whole = Preprocessor(PLAN, {"arena.bin": ROWS}, {}, {"piece.onnx": engine})
    tensors = request(0, 2, 7, 1)
    tensors["code"][:] = 1
    tensors["code"][1, position] = 7
    (result,) = whole.run([tensors])
    assert f", user 1, candidate {position}: the value fails: seven" in str(result)


def test_an_engine_that_fails_on_the_batch_only_answers_each_request() -> None:
    def engine(feeds):
        if len(feeds["b"]) > 3:
            raise MemoryError("too many")
        return {"one": feeds["b"], "many": feeds["s"], "root": np.ones((len(feeds["b"]), 1), np.float32)}

    whole = Preprocessor(PLAN, {"arena.bin": ROWS}, {}, {"piece.onnx": engine})
    requests = [request(seed, 1, 3, 2) for seed in range(3)]
    alone = [whole.run([tensors])[0] for tensors in requests]
    for found, wanted in zip(whole.run(requests), alone, strict=True):
        np.testing.assert_array_equal(found.items, wanted.items)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"piece\.onnx: is missing; rebuild"):
        open_engine(PIECE, tmp_path / "piece.onnx")


def test_a_plan_with_subgraphs_comes_back_as_it_was() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN
