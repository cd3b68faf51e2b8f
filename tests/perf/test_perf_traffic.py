"""Requests of one size, and the bytes that they become."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient import grpc
from tritonclient.grpc import service_pb2

from agreement import require_equal
from bireme.errors import VerifyError
from bireme.requests import count_candidates, to_tensors
from bireme_runtime.plan import Feature, Plan
from traffic import make_traffic
from wire import decode, encode

FEATURES = (
    Feature("age", "user", "int64"),
    Feature("seen", "user", "string", -1, default=[]),
    Feature("name", "item", "string"),
    Feature("price", "item", "float32", default=2.5),
)
PLAN = Plan("shop", FEATURES, (), (), 1, 1, "float32", (16,), pad=False)
RECORDED = [
    {"user": {"age": 30, "seen": ["a"]}, "items": {"name": ["a", "bß"], "price": [1.0, 2.0]}},
    {"user": {"age": 40, "seen": []}, "items": {"name": ["c"]}},
]


@pytest.mark.parametrize("candidates", [1, 2, 3, 9])
def test_every_request_has_the_wanted_number_of_candidates(candidates):
    requests = make_traffic(PLAN, {}, RECORDED, candidates, 10)
    assert [count_candidates(request) for request in requests] == [candidates] * 10
    assert all(to_tensors(FEATURES, request)["price"].shape == (1, candidates) for request in requests)


def test_every_second_request_is_as_recorded_and_keeps_each_candidate_together():
    for number, request in enumerate(make_traffic(PLAN, {}, RECORDED, 3, 10)):
        if number % 2 == 0:
            assert request["user"] == RECORDED[number % 2]["user"]
            pairs = set(zip(request["items"]["name"], request["items"]["price"], strict=True))
            assert pairs == {("a", 1.0), ("bß", 2.0), ("c", 2.5)}  # the default where the log has nothing


def test_the_others_hold_some_strings_that_were_never_seen_of_the_same_lengths():
    requests = make_traffic(PLAN, {}, RECORDED, 50, 10)[1::2]
    names = [name for request in requests for name in request["items"]["name"]]
    unseen = [name for name in names if name not in ("a", "bß", "c")]
    assert 0 < len(unseen) < len(names) / 2
    assert {len(name) for name in names} == {1, 2}
    assert {request["user"]["age"] for request in requests} == {40}


def test_same_seed_same_requests_and_different_ones_among_them():
    first, second = (make_traffic(PLAN, {}, RECORDED, 4, 6, seed=3) for _ in range(2))
    assert first == second
    assert len({str(request) for request in first}) > 3


def test_without_a_log_all_are_made_up():
    assert len(make_traffic(PLAN, {}, [], 4, 6)) == 6


@pytest.mark.parametrize("request_", RECORDED)
def test_the_bytes_are_those_of_tritonclient(request_):
    sent = service_pb2.ModelInferRequest.FromString(encode("shop", FEATURES, request_))
    assert sent.model_name == "shop"
    contents = dict(zip((entry.name for entry in sent.inputs), sent.raw_input_contents, strict=True))
    kinds = {"age": "INT64", "seen": "BYTES", "name": "BYTES", "price": "FP32"}
    for name, array in to_tensors(FEATURES, request_).items():
        theirs = grpc.InferInput(name, list(array.shape), kinds[name])
        theirs.set_data_from_numpy(array)
        ours = next(entry for entry in sent.inputs if entry.name == name)
        assert (list(ours.shape), ours.datatype) == (list(array.shape), kinds[name])
        assert contents[name] == theirs._get_content()


def answer(**tasks: list[float]) -> bytes:
    message = service_pb2.ModelInferResponse()
    for name, scores in tasks.items():
        message.outputs.add(name=name, datatype="FP32", shape=[1, len(scores)])
        message.raw_output_contents.append(np.array(scores, np.float32).tobytes())
    return message.SerializeToString()


def test_an_answer_is_read_back():
    np.testing.assert_array_equal(decode(answer(click=[0.5, 0.25]))["click"], [[0.5, 0.25]])


def test_equal_scores_pass_and_the_largest_difference_is_told():
    ours, theirs = [answer(click=[0.5]), answer(click=[0.25])], [answer(click=[0.5]), answer(click=[0.375])]
    assert require_equal("a", ours, "b", theirs, tolerance=0.2) == 0.125


@pytest.mark.parametrize(
    "other", [answer(click=[0.51]), answer(click=[float("nan")]), answer(click=[0.5, 0.5]), answer(buy=[0.5])]
)
def test_other_scores_are_refused(other):
    with pytest.raises(VerifyError, match="request 0"):
        require_equal("a", [answer(click=[0.5])], "b", [other], tolerance=1e-5)
