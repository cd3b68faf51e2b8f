"""Both model.py, emitted and run without a server: what goes in, what comes out, who gets an error."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from runtime_plans import FILES, PLAN, make_request, write_file

from bireme.emitter.artifacts import Artifacts
from bireme.emitter.layout import emit
from bireme.spec import Contract, Target
from bireme_runtime.preprocessor import Features, Preprocessor
from fake_pb_utils import FakeModel, TritonError

Array = np.ndarray[Any, Any]
USER, ITEM, BUCKETS = PLAN.user_width, PLAN.item_width, PLAN.buckets


def dense(handover: int) -> bytes:
    """sum = Σ items + Σ user; first = items[0], to tell candidates apart. Both FP32 [users, candidates]."""
    wide = TensorProto.FLOAT
    nodes = [
        helper.make_node("Cast", ["items"], ["i"], to=wide),
        helper.make_node("Cast", ["user"], ["u"], to=wide),
        helper.make_node("ReduceSum", ["i", "two"], ["items_sum"], keepdims=0),
        helper.make_node("ReduceSum", ["u", "one"], ["user_sum"], keepdims=1),
        helper.make_node("Add", ["items_sum", "user_sum"], ["sum"]),
        helper.make_node("Slice", ["i", "zero", "one", "two"], ["column"]),
        helper.make_node("Squeeze", ["column", "two"], ["first"]),
    ]
    constants = [
        helper.make_tensor(n, TensorProto.INT64, [1], [v]) for n, v in (("zero", 0), ("one", 1), ("two", 2))
    ]
    inputs = [
        helper.make_tensor_value_info("user", handover, ["users", USER]),
        helper.make_tensor_value_info("items", handover, ["users", "candidates", ITEM]),
    ]
    outputs = [helper.make_tensor_value_info(n, wide, ["users", "candidates"]) for n in ("sum", "first")]
    graph = helper.make_graph(nodes, "dense", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module", autouse=True)
def _path_stays() -> Any:
    """Each model.py puts its folder on sys.path."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    targets: tuple[Target, ...] = ("cpu", "gpu")
    for target in targets:
        contract = Contract(
            model="shop",
            features=PLAN.features,
            tasks=("sum", "first"),
            user_width=USER,
            item_width=ITEM,
            buckets=BUCKETS,
            max_users=8,
            target=target,
            handover="float16" if target == "gpu" else "float32",
        )
        plan = dataclasses.replace(PLAN, handover=contract.handover, pad=target == "gpu")
        files = {name: lambda path, name=name: write_file(name, path) for name in FILES}
        onnx = dense(TensorProto.FLOAT16 if target == "gpu" else TensorProto.FLOAT)
        artifacts = Artifacts(plan=plan, files=files, dense_onnx=onnx)
        found[target] = tmp_path_factory.mktemp(target)
        emit(artifacts, contract, found[target])
        if target == "cpu":
            found["fused"] = tmp_path_factory.mktemp("fused")
            emit(artifacts, contract.model_copy(update={"layout": "fused"}), found["fused"])
    return found


@pytest.fixture(scope="module")
def preprocess(repositories: dict[str, Path]) -> FakeModel:
    return FakeModel(repositories["cpu"] / "shop_preprocess")


@pytest.fixture(scope="module")
def dnn(repositories: dict[str, Path]) -> FakeModel:
    return FakeModel(repositories["cpu"] / "shop_dnn")


@pytest.fixture(scope="module")
def fused(repositories: dict[str, Path]) -> FakeModel:
    return FakeModel(repositories["fused"] / "shop")


def result(answer: dict[str, Array] | TritonError) -> dict[str, Array]:
    assert isinstance(answer, dict), answer
    return answer


def refusal(answer: dict[str, Array] | TritonError) -> str:
    assert isinstance(answer, TritonError), answer
    assert answer.code() == TritonError.INVALID_ARG
    assert "Traceback" not in answer.message()
    assert "At:" not in answer.message()
    return answer.message()


def test_preprocess_answers_every_request_with_its_own_features(
    preprocess: FakeModel, repositories: dict[str, Path]
) -> None:
    requests = [make_request(seed, 1 + seed % 2, 1 + seed, 2, 1) for seed in range(5)]
    plain = Preprocessor.open(repositories["cpu"] / "shop_preprocess" / "1")
    for answer, wanted in zip(preprocess.execute(requests), plain.run(requests), strict=True):
        assert isinstance(wanted, Features)
        assert sorted(result(answer)) == ["items", "user"]
        assert np.array_equal(result(answer)["user"], wanted.user)
        np.testing.assert_allclose(result(answer)["items"], wanted.items, rtol=1e-6)  # logarithms


def test_preprocess_gives_a_bad_request_its_own_error(preprocess: FakeModel) -> None:
    requests = [make_request(seed, 1, 4, 2, 1) for seed in range(5)]
    alone = [result(preprocess.execute([request])[0]) for request in requests]
    requests[1]["hour"][:] = 24
    del requests[2]["iid"]
    requests[4]["price"] = requests[4]["price"][:, :3]
    answers = preprocess.execute(requests)
    assert "'hour': the value gives id 24" in refusal(answers[1])
    assert "'iid' is missing" in refusal(answers[2])
    assert "'price' has 3 candidates, 'iid' has 4" in refusal(answers[4])
    for index in (0, 3):
        assert np.array_equal(result(answers[index])["items"], alone[index]["items"])


def test_preprocess_of_the_gpu_target_pads_and_counts(
    repositories: dict[str, Path], preprocess: FakeModel
) -> None:
    padding = FakeModel(repositories["gpu"] / "shop_preprocess")
    requests = [
        make_request(seed, users, n, 2, 1) for seed, (users, n) in enumerate([(1, 1), (2, 3), (1, 9)])
    ]
    answers = zip(padding.execute(requests), preprocess.execute(requests), strict=True)
    for (padded, exact), users, n, bucket in zip(answers, (1, 2, 1), (1, 3, 9), (2, 4, 9), strict=True):
        got, wanted = result(padded), result(exact)
        assert got["items"].dtype == got["user"].dtype == np.float16
        assert got["items"].shape == (users, bucket, ITEM)
        assert got["n"].dtype == np.int32
        assert got["n"].tolist() == [[n]] * users
        assert np.array_equal(got["items"][:, :n], wanted["items"].astype(np.float16))
        assert not got["items"][:, n:].any()
        assert np.array_equal(got["user"], wanted["user"].astype(np.float16))
    assert "has 10 candidates; a request must have 1 to 9" in refusal(
        padding.execute([make_request(0, 1, 10, 0, 0)])[0]
    )


def test_preprocess_refuses_to_start_on_a_damaged_folder(
    repositories: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "shop_preprocess"
    shutil.copytree(repositories["cpu"] / "shop_preprocess", folder)
    (folder / "1" / "plan.json").unlink()
    with pytest.raises(ValueError, match=r"plan\.json: cannot be read: No such file.*rebuild the repository"):
        FakeModel(folder)


def handover(seed: int, users: int, candidates: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "user": rng.normal(size=(users, USER)).astype(np.float32),
        "items": rng.normal(size=(users, candidates, ITEM)).astype(np.float32),
    }


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.integers(1, 3), st.integers(1, BUCKETS[-1])), min_size=1, max_size=8
    )
)
@settings(max_examples=40)
def test_dnn_gives_every_request_exactly_its_candidates(
    dnn: FakeModel, specs: list[tuple[int, int, int]]
) -> None:
    requests = [handover(*spec) for spec in specs]
    for answer, request in zip(dnn.execute(requests), requests, strict=True):
        scores = result(answer)
        expected = request["items"].sum(axis=2) + request["user"].sum(axis=1, keepdims=True)
        assert scores["sum"].dtype == np.float32
        np.testing.assert_allclose(scores["sum"], expected, rtol=1e-4, atol=1e-4)
        assert np.array_equal(scores["first"], request["items"][:, :, 0])


def test_dnn_runs_one_bucket_at_a_time(dnn: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    session = dnn.instance._dense.session

    class Watched:
        def run(self, tasks: list[str], feeds: dict[str, Array]) -> list[Array]:
            shapes.append(feeds["items"].shape)
            return session.run(tasks, feeds)

    monkeypatch.setattr(dnn.instance._dense, "session", Watched())
    dnn.execute(
        [handover(0, 1, 1), handover(1, 2, 9), handover(2, 1, 2), handover(3, 1, 7), handover(4, 3, 4)]
    )
    assert shapes == [(2, 2, ITEM), (3, 9, ITEM), (3, 4, ITEM)]


@pytest.mark.parametrize("count", [0, 10])
def test_dnn_refuses_one_request_and_answers_the_others(count: int, dnn: FakeModel) -> None:
    answers = dnn.execute([handover(0, 1, 3), handover(1, 1, count), handover(2, 2, 9)])
    assert refusal(answers[1]) == f"{count} candidates; a request must have 1 to 9"
    assert result(answers[0])["sum"].shape == (1, 3)
    assert result(answers[2])["sum"].shape == (2, 9)
    assert refusal(dnn.execute([handover(1, 1, count)])[0])


def test_the_two_models_together_rank(preprocess: FakeModel, dnn: FakeModel) -> None:
    requests = [make_request(seed, 1, 1 + seed, 1, 1) for seed in range(9)]
    features = [result(answer) for answer in preprocess.execute(requests)]
    for answer, feature in zip(dnn.execute(features), features, strict=True):
        expected = feature["items"].sum(axis=2) + feature["user"].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(result(answer)["sum"], expected, rtol=1e-4, atol=1e-4)


def test_the_fused_model_is_the_two_models(preprocess: FakeModel, dnn: FakeModel, fused: FakeModel) -> None:
    requests = [make_request(seed, 1 + seed % 3, 1 + seed, 1, 1) for seed in range(9)]
    handed = [result(answer) for answer in preprocess.execute(requests)]
    for whole, parts in zip(fused.execute(requests), dnn.execute(handed), strict=True):
        assert list(result(whole)) == ["sum", "first"]
        for task, scores in result(parts).items():
            assert np.array_equal(result(whole)[task], scores)
    # One by one, and so with nothing filled up: the same to a rounding.
    for request, parts in zip(requests, dnn.execute(handed), strict=True):
        (alone,) = fused.execute([request])
        np.testing.assert_allclose(result(alone)["sum"], result(parts)["sum"], rtol=1e-4, atol=1e-4)


def test_the_fused_model_refuses_one_request_and_answers_the_others(
    preprocess: FakeModel, fused: FakeModel
) -> None:
    good = [make_request(seed, 1, 3 + seed, 1, 1) for seed in range(2)]
    for bad in (make_request(3, 1, 10, 1, 1), {}, {"no": np.zeros((1, 1), np.float32)}):
        answers = fused.execute([good[0], bad, good[1]])
        assert refusal(answers[1]) == refusal(preprocess.execute([bad])[0])
        assert result(answers[0])["sum"].shape == (1, 3)
        assert result(answers[2])["sum"].shape == (1, 4)
        assert refusal(fused.execute([bad])[0])
