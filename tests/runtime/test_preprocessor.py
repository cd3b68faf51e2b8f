"""A whole plan: a batch equals its requests one by one, equals the slow way, and bad requests fail alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_plans import OPTIONAL, PLAN, Tensors, make_request, objects, slowly, write_plan

from bireme_runtime.preprocessor import Features, Preprocessor, RequestError

MAXIMUM = PLAN.buckets[-1]
Spec = tuple[int, int, int, int, int, set[str]]
SPEC = st.tuples(
    st.integers(0, 99),
    st.integers(1, 3),
    st.integers(1, MAXIMUM),
    st.integers(0, 5),
    st.integers(0, 3),
    st.sets(st.sampled_from(OPTIONAL)),
)
BATCH = st.lists(SPEC, min_size=1, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plan(tmp_path_factory.mktemp("plan"))


@pytest.fixture(scope="module")
def preprocessor(folder: Path) -> Preprocessor:
    return Preprocessor.open(folder)


def good(result: Features | RequestError) -> Features:
    assert isinstance(result, Features), result
    return result


def same(first: Features, second: Features) -> None:
    assert np.array_equal(first.user, second.user)
    assert np.array_equal(first.items, second.items)
    assert first.candidates == second.candidates


@given(BATCH)
def test_a_batch_is_its_requests_one_by_one(preprocessor: Preprocessor, specs: list[Spec]) -> None:
    requests = [make_request(*spec) for spec in specs]
    for together, request in zip(preprocessor.run(requests), requests, strict=True):
        same(good(together), good(preprocessor.run([request])[0]))


@given(SPEC)
@settings(max_examples=50)
def test_a_request_is_what_the_slow_way_gives(preprocessor: Preprocessor, spec: Spec) -> None:
    request = make_request(*spec)
    found = good(preprocessor.run([request])[0])
    user, items = slowly(preprocessor, request)
    assert (found.user.dtype, found.items.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(found.user, user, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.items, items, rtol=1e-5, atol=1e-6)


@given(SPEC)
def test_several_users_are_the_single_ones(preprocessor: Preprocessor, spec: Spec) -> None:
    request = make_request(*spec)
    found = good(preprocessor.run([request])[0])
    for user in range(spec[1]):
        alone = {name: array[user : user + 1] for name, array in request.items()}
        single = good(preprocessor.run([alone])[0])
        assert np.array_equal(found.user[user], single.user[0])
        assert np.array_equal(found.items[user], single.items[0])


@given(SPEC)
def test_candidates_do_not_see_each_other(preprocessor: Preprocessor, spec: Spec) -> None:
    request = make_request(*spec)
    found = good(preprocessor.run([request])[0])
    items = {feature.name for feature in PLAN.features if feature.side == "item"}
    turned = {name: array[:, ::-1] if name in items else array for name, array in request.items()}
    assert np.array_equal(good(preprocessor.run([turned])[0]).items, found.items[:, ::-1])


@given(SPEC)
def test_a_default_is_as_if_it_had_been_sent(preprocessor: Preprocessor, spec: Spec) -> None:
    request = make_request(*spec)
    full = dict(request)
    users, candidates = request["iid"].shape
    for feature in PLAN.features:
        if feature.name not in request:
            shape = (users, candidates) if feature.side == "item" else (users,)
            shape += (1,) if feature.length is None and feature.side == "user" else ()
            shape += (len(feature.default),) if feature.length is not None else ()
            if feature.dtype == "string":
                array = np.empty(shape, object)
                array[...] = np.array(feature.default, object)
            else:
                array = np.broadcast_to(np.array(feature.default, feature.dtype), shape)
            full[feature.name] = array
    same(good(preprocessor.run([request])[0]), good(preprocessor.run([full])[0]))


def _set(name: str, value: Any) -> Callable[[Tensors], Any]:
    def change(request: Tensors) -> None:
        request[name].reshape(-1)[-1] = value

    return change


def _cut(name: str) -> Callable[[Tensors], Any]:
    def change(request: Tensors) -> None:
        request[name] = request[name][:, :-1]

    return change


def _no_candidates(request: Tensors) -> None:
    for feature in PLAN.features:
        if feature.side == "item" and feature.name in request:
            request[feature.name] = request[feature.name][:, :0]


FAULTS: list[tuple[Callable[[Tensors], Any], str]] = [
    (_set("hour", 24), "feature 'hour'.* gives id 24; table 'hours' has rows 0 to 23"),
    (_set("hour", -1), "feature 'hour'.* gives id -1"),
    (_set("recent", 10), "feature 'recent'.* gives id 10; table 'half' has rows 0 to 9"),
    (_set("uid", b"\xff"), "feature 'uid'.* is not valid UTF-8"),
    (_set("iid", b"\xc3("), "feature 'iid'.*, candidate 1: the value is not valid UTF-8"),
    (_set("price", np.nan), "feature 'price'.*, candidate 1: the value is nan; it must be finite"),
    (_set("price", -7.0), "feature 'price'.*, candidate 1: .* becomes nan after log1p, mul"),
    (_set("age", np.inf), "feature 'age'.* is inf; it must be finite"),
    (_cut("iid"), "feature '(price|cat|tags|raw)' has 2 candidates, 'iid' has 1"),
    (_cut("recent"), "feature 'recent' has sequences of 2; the model takes exactly 3"),
    (lambda request: request.pop("uid"), "feature 'uid' is missing and has no default"),
    (_no_candidates, "feature 'iid' has 0 candidates; a request must have 1 to 9"),
]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, len(FAULTS) - 1)), min_size=1, max_size=8))
def test_bad_requests_fail_alone_and_each_for_its_own_reason(
    preprocessor: Preprocessor, plan: list[tuple[bool, int]]
) -> None:
    requests, expected = [], []
    for seed, (bad, fault) in enumerate(plan):
        request = make_request(seed, 1 + seed % 2, 2, 1, 1)
        expected.append(FAULTS[fault][1] if bad else preprocessor.run([request])[0])
        if bad:
            FAULTS[fault][0](request)
        requests.append(request)
    for result, wanted in zip(preprocessor.run(requests), expected, strict=True):
        if isinstance(wanted, str):
            assert isinstance(result, RequestError)
            with pytest.raises(RequestError, match=f"^{wanted}"):
                raise result
        else:
            same(good(result), good(wanted))


@pytest.mark.parametrize("count", [1, 7])
def test_any_number_of_equal_faults_costs_one_more_pass(
    count: int, preprocessor: Preprocessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []
    run = preprocessor._run
    monkeypatch.setattr(preprocessor, "_run", lambda requests: passes.append(len(requests)) or run(requests))
    requests = [make_request(seed, 1, 2, 1, 1) for seed in range(8)]
    for request in requests[:count]:
        _set("hour", 99)(request)
    results = preprocessor.run(requests)
    assert [isinstance(result, RequestError) for result in results] == [i < count for i in range(8)]
    assert passes == [8, 8 - count]


def test_no_request_at_all(preprocessor: Preprocessor) -> None:
    assert preprocessor.run([]) == []


def test_nothing_but_bad_requests(preprocessor: Preprocessor) -> None:
    results = preprocessor.run([{}, make_request(0, 1, 10, 0, 0)])
    assert [type(result) for result in results] == [RequestError, RequestError]


@given(BATCH)
@settings(max_examples=30)
def test_with_padding_every_request_fills_its_bucket_with_zeros(folder: Path, specs: list[Spec]) -> None:
    plain = Preprocessor.open(folder)
    padding = Preprocessor(dataclasses.replace(PLAN, pad=True), plain._arenas, plain._vocabularies)
    requests = [make_request(*spec) for spec in specs]
    for spec, padded, exact in zip(specs, padding.run(requests), plain.run(requests), strict=True):
        padded, exact = good(padded), good(exact)
        bucket = min(bucket for bucket in PLAN.buckets if bucket >= spec[2])
        assert padded.items.shape == (spec[1], bucket, PLAN.item_width)
        assert padded.candidates == spec[2]
        assert np.array_equal(padded.items[:, : spec[2]], exact.items)
        assert not padded.items[:, spec[2] :].any()
        assert np.array_equal(padded.user, exact.user)


def test_half_precision_is_the_rounded_single_precision(folder: Path) -> None:
    single = Preprocessor.open(folder)
    half = Preprocessor(dataclasses.replace(PLAN, handover="float16"), single._arenas, single._vocabularies)
    request = make_request(3, 2, 4, 2, 2)
    found, exact = good(half.run([request])[0]), good(single.run([request])[0])
    assert (found.user.dtype, found.items.dtype) == (np.float16, np.float16)
    assert np.array_equal(found.user, exact.user.astype(np.float16))
    assert np.array_equal(found.items, exact.items.astype(np.float16))


def test_half_precision_refuses_what_it_cannot_hold(folder: Path) -> None:
    single = Preprocessor.open(folder)
    half = Preprocessor(dataclasses.replace(PLAN, handover="float16"), single._arenas, single._vocabularies)
    request = make_request(3, 1, 1, 0, 0)
    request["age"][:] = 1e6
    assert isinstance(single.run([request])[0], Features)
    assert "feature 'age': the value is 1000000.0, which becomes" in str(half.run([request])[0])


def test_results_of_one_batch_do_not_overlap(preprocessor: Preprocessor) -> None:
    results: Sequence[Features] = [
        good(result) for result in preprocessor.run([make_request(seed, 1, 3, 1, 1) for seed in range(3)])
    ]
    rest = [(r.user.copy(), r.items.copy()) for r in results[1:]]
    results[0].user[...] = 0
    results[0].items[...] = 0
    for result, (user, items) in zip(results[1:], rest, strict=True):
        assert np.array_equal(result.user, user)
        assert np.array_equal(result.items, items)


def test_a_long_history_and_a_huge_string_do_not_disturb_their_neighbours(
    preprocessor: Preprocessor,
) -> None:
    small = make_request(1, 1, 2, 2, 2)
    large = make_request(2, 1, 9, 10_000, 50)
    large["iid"][0, 3] = b"x" * 70_000
    large["raw"][0, 3] = b"\xff" * 70_000
    alone = good(preprocessor.run([small])[0])
    first, middle, last = preprocessor.run([small, large, small])
    same(good(first), alone)
    same(good(last), alone)
    user, items = slowly(preprocessor, large)
    np.testing.assert_allclose(good(middle).user, user, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(good(middle).items, items, rtol=1e-5, atol=1e-6)


def test_strings_that_end_in_nul_stay_what_they_are(preprocessor: Preprocessor) -> None:
    known, other = make_request(1, 1, 1, 0, 0), make_request(1, 1, 1, 0, 0)
    known["iid"], other["iid"] = objects([b"shoe"], (1, 1)), objects([b"shoe\0"], (1, 1))
    one, two = (good(result) for result in preprocessor.run([known, other]))
    assert not np.array_equal(one.items[..., :4], two.items[..., :4])
