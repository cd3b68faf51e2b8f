"""The comparison itself: it finds the worst request, loses none, and cannot be satisfied by silence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bireme.errors import ClientError, VerifyError
from bireme.verify.parity import Parity, Scores, compare_served
from bireme.verify.tolerance import Tolerance
from bireme_runtime.plan import Feature

FEATURES = (Feature("hour", "user", "int64"), Feature("price", "item", "float32"))
REQUESTS = [
    {"user": {"hour": i}, "items": {"price": [i + k / 8 for k in range(1 + i % 5)]}} for i in range(40)
]


def right(tensors: dict[str, np.ndarray[Any, Any]]) -> Scores:
    return {"click": (tensors["price"] * 2 + tensors["hour"]).astype(np.float32)}


EXPECTED = [
    {"click": np.array([2 * p + r["user"]["hour"] for p in r["items"]["price"]], np.float32)}
    for r in REQUESTS
]


def within(value: float) -> dict[str, Tolerance]:
    return {"click": Tolerance(value, "of a test")}


class Client:
    """Answers like a served model; `answer` may be wrong on purpose."""

    def __init__(self, answer: Callable[[Any], Scores] = right) -> None:
        self.features = FEATURES
        self.answer = answer
        self.sent: list[int] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def infer(self, tensors: Any) -> Scores:
        self.sent.append(int(tensors["hour"][0, 0]))
        return self.answer(tensors)


def compare(answer: Callable[[Any], Scores] = right, clients: int = 4) -> Parity:
    return compare_served(lambda: Client(answer), "grpc", REQUESTS, EXPECTED, clients)  # type: ignore[arg-type,return-value]


def test_equal_scores_pass_and_are_counted() -> None:
    parity = compare()
    assert (parity.requests, parity.failures) == (len(REQUESTS), {})
    assert parity.scores == sum(len(e["click"]) for e in EXPECTED)
    assert parity.counts == {1, 2, 3, 4, 5}
    assert parity.max_difference == 0
    parity.require(within(0.0))


def test_every_request_is_sent_once_by_some_client() -> None:
    made: list[Client] = []

    def connect() -> Client:
        made.append(Client())
        return made[-1]

    compare_served(connect, "http", REQUESTS, EXPECTED, 8)  # type: ignore[arg-type]
    assert sorted(hour for client in made for hour in client.sent) == list(range(len(REQUESTS)))
    assert len(made) == 8


def test_progress_ends_at_the_total() -> None:
    seen: list[int] = []
    compare_served(lambda: Client(), "grpc", REQUESTS, EXPECTED, 3, seen.append)  # type: ignore[arg-type,return-value]
    assert max(seen) == len(REQUESTS)


def off_by(amount: float, hour: int) -> Callable[[Any], Scores]:
    def answer(tensors: Any) -> Scores:
        scores = right(tensors)
        if tensors["hour"][0, 0] == hour:
            scores["click"][0, -1] += amount
        return scores

    return answer


def test_the_worst_request_is_named() -> None:
    parity = compare(off_by(0.5, 17))
    assert parity.differences == {"click": (0.5, 17)}
    assert parity.max_difference == 0.5
    parity.require(within(0.5))
    with pytest.raises(
        VerifyError, match=r"request 17 over grpc: differs .* by 0\.5 in 'click' \(tolerance 0\.1: of a test"
    ):
        parity.require(within(0.1))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_score_that_is_no_number_is_a_difference(value: float) -> None:
    with pytest.raises(VerifyError, match="request 3 over grpc: differs from the original model by inf"):
        compare(off_by(value, 3)).require(within(1e9))


def test_scores_in_another_order_are_a_difference() -> None:
    with pytest.raises(VerifyError, match="differs from the original model"):
        compare(lambda tensors: {"click": right(tensors)["click"][:, ::-1]}).require(within(1e-3))


def test_answers_of_another_request_are_a_difference() -> None:
    """What a mixed-up batch looks like: right shape, a neighbour's scores."""

    def answer(tensors: Any) -> Scores:
        return right(tensors | {"hour": tensors["hour"] ^ 1})

    with pytest.raises(VerifyError, match="by 1 "):
        compare(answer).require(within(1e-3))


def test_a_wrong_number_of_scores_is_a_failure() -> None:
    with pytest.raises(
        VerifyError, match=r"request 0 .*task 'click': scores of shape \(2,\) for 1 candidates"
    ):
        compare(lambda tensors: {"click": np.pad(right(tensors)["click"], ((0, 0), (0, 1)))}).require(
            within(1)
        )


def test_a_missing_task_is_a_failure() -> None:
    with pytest.raises(VerifyError, match=r"failed: task 'click': scores of shape None .*and 39 more"):
        compare(lambda tensors: {"buy": right(tensors)["click"]}).require(within(1))


@pytest.mark.parametrize("error", [ClientError("host:1", "is down"), RuntimeError("odd"), KeyError("x")])
def test_a_request_that_fails_fails_the_comparison(error: Exception) -> None:
    def answer(tensors: Any) -> Scores:
        if tensors["hour"][0, 0] == 9:
            raise error
        return right(tensors)

    parity = compare(answer)
    assert (parity.requests, [*parity.failures]) == (len(REQUESTS) - 1, [9])
    with pytest.raises(VerifyError, match=r"request 9 over grpc: failed: .*\(N = 5\)"):
        parity.require(within(1))


def test_clients_that_cannot_connect_fail_every_request() -> None:
    def connect() -> Client:
        raise ClientError("host:1", "is not there")

    parity = compare_served(connect, "grpc", REQUESTS, EXPECTED, 4)  # type: ignore[arg-type]
    assert [*parity.failures] == list(range(len(REQUESTS)))
    with pytest.raises(VerifyError, match="is not there"):
        parity.require(within(1))


def test_one_client_that_cannot_connect_leaves_its_work_to_the_others() -> None:
    turns = iter(range(4))
    lock = threading.Lock()

    def connect() -> Client:
        with lock:
            if next(turns) == 0:
                raise ClientError("host:1", "is full")
        return Client()

    parity = compare_served(connect, "grpc", REQUESTS, EXPECTED, 4)  # type: ignore[arg-type]
    assert (parity.requests, parity.failures) == (len(REQUESTS), {})


def test_nothing_compared_is_no_success() -> None:
    with pytest.raises(VerifyError, match="no request was compared"):
        Parity("grpc").require(within(1))
