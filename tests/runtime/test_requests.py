"""Shapes measured, tensors laid end to end, and every complaint at the right address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_plans import FEATURES, OPTIONAL, make_request, objects

from bireme_runtime.plan import Feature
from bireme_runtime.requests import MAX_TEXT, BadRequests, Batch, Request, RequestError, measure
from bireme_runtime.strings import FlatStrings

MAXIMUM = 9
BY_NAME = {feature.name: feature for feature in FEATURES}
SPECS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(1, 3),
        st.integers(1, MAXIMUM),
        st.integers(0, 4),
        st.integers(0, 3),
        st.sets(st.sampled_from(OPTIONAL)),
    ),
    min_size=1,
    max_size=5,
)


def batch_of(*tensors: dict[str, Any]) -> Batch:
    return Batch([measure(FEATURES, each, MAXIMUM) for each in tensors], FEATURES)


@pytest.mark.parametrize("left_out", [(), OPTIONAL])
def test_measure_finds_users_and_candidates(left_out: tuple[str, ...]) -> None:
    measured = measure(FEATURES, make_request(1, 2, 5, 3, 1, left_out), MAXIMUM)
    assert (measured.users, measured.candidates) == (2, 5)


def change(**changes: Any) -> dict[str, Any]:
    """A request with 2 users and 4 candidates and something changed; None takes a feature out."""
    tensors = make_request(0, 2, 4, 3, 2) | changes
    return {name: array for name, array in tensors.items() if array is not None}


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


WRONG_SHAPES = [
    (change(uid=None), "feature 'uid' is missing and has no default"),
    (change(iid=None), "feature 'iid' is missing and has no default"),
    (change(hour=np.ones((2,), int)), r"feature 'hour' has shape \[2\]; 2 dimensions are expected"),
    (change(hour=np.ones((2, 1, 1), int)), r"feature 'hour' has shape \[2, 1, 1\]; 2 dimensions"),
    (change(hour=np.ones((2, 2), int)), "feature 'hour' has 2 values; a user has exactly 1"),
    (change(hour=np.ones((2, 0), int)), "feature 'hour' has 0 values; a user has exactly 1"),
    (change(hour=np.ones((3, 1), int)), "feature 'hour' has 3 users, 'uid' has 2"),
    (change(price=numbers(2, 4, 1)), r"feature 'price' has shape \[2, 4, 1\]; 2 dimensions"),
    (change(price=numbers(2, 5)), "feature 'price' has 5 candidates, 'iid' has 4"),
    (change(price=numbers(1, 4)), "feature 'price' has 1 users, 'uid' has 2"),
    (change(tags=np.empty((2, 4), object)), r"feature 'tags' has shape \[2, 4\]; 3 dimensions"),
    (change(tags=np.empty((2, 3, 2), object)), "feature 'tags' has 3 candidates, 'iid' has 4"),
    (change(recent=np.ones((2, 4), int)), "feature 'recent' has sequences of 4; the model takes exactly 3"),
    (change(recent=np.ones((2, 0), int)), "feature 'recent' has sequences of 0; the model takes exactly 3"),
    (make_request(0, 2, 0, 3, 2), f"feature 'iid' has 0 candidates; a request must have 1 to {MAXIMUM}"),
    (make_request(0, 2, 10, 3, 2), f"feature 'iid' has 10 candidates; a request must have 1 to {MAXIMUM}"),
    (make_request(0, 0, 4, 3, 2), "feature 'uid' has 0 users; a request must have at least 1"),
]


@pytest.mark.parametrize(("tensors", "message"), WRONG_SHAPES)
def test_a_wrong_shape_is_refused_by_name(tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=f"^{message}"):
        measure(FEATURES, tensors, MAXIMUM)


def test_without_any_item_feature_the_candidates_are_unknown() -> None:
    features = (Feature("u", "user", "float32"), Feature("i", "item", "float32", default=0.0))
    with pytest.raises(RequestError, match="no item feature was sent"):
        measure(features, {"u": numbers(1, 1)}, MAXIMUM)


@given(SPECS)
def test_columns_are_the_requests_laid_end_to_end(specs: list[Any]) -> None:
    requests = [make_request(*spec) for spec in specs]
    batch = batch_of(*requests)
    assert batch.total("user") == sum(spec[1] for spec in specs)
    assert batch.total("item") == sum(spec[1] * spec[2] for spec in specs)
    for feature in FEATURES:
        rows: list[list[Any]] = []
        for spec, request in zip(specs, requests, strict=True):
            count = spec[1] * (spec[2] if feature.side == "item" else 1)
            if feature.name in request:
                rows += request[feature.name].reshape(count, -1).tolist()
            else:
                value = feature.default if feature.length is not None else [feature.default]
                rows += [[v.encode() if isinstance(v, str) else v for v in value]] * count
        column = batch.columns[feature.name]
        flat = [value for row in rows for value in row]
        if isinstance(column.values, FlatStrings):
            assert [column.values[i] for i in range(len(column.values))] == flat
        else:
            assert column.values.dtype == feature.dtype
            assert column.values.tolist() == flat
        lengths = None if column.lengths is None else column.lengths.tolist()
        assert lengths == (None if feature.length is None else [len(row) for row in rows])


@given(st.data(), SPECS, st.sampled_from(["uid", "country", "seen", "iid", "tags", "age", "price"]))
def test_every_bad_value_is_blamed_on_its_request(data: st.DataObject, specs: list[Any], name: str) -> None:
    """Any number of bad requests, found in one pass, each with the place of its own first bad value."""
    text = BY_NAME[name].dtype == "string"
    requests = [make_request(*spec[:5]) for spec in specs]
    expected = {}
    for index, (request, spec) in enumerate(zip(requests, specs, strict=True)):
        array = request[name]
        bad = data.draw(st.sets(st.integers(0, array.size - 1), max_size=3)) if array.size else set()
        for position in bad:
            array.reshape(-1)[position] = b"a\xff" if text else np.nan
        if bad:
            place = np.unravel_index(min(bad), array.shape)
            user = f", user {place[0]}" if spec[1] > 1 else ""
            candidate = f", candidate {place[1]}" if BY_NAME[name].side == "item" else ""
            what = "is not valid UTF-8" if text else "is nan; it must be finite"
            expected[index] = f"feature '{name}'{user}{candidate}: the value {what}"
    if expected:
        with pytest.raises(BadRequests) as caught:
            batch_of(*requests)
        assert {i: str(error) for i, error in caught.value.errors.items()} == expected
    else:
        batch_of(*requests)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["age", "price"])
def test_numbers_must_be_finite(value: float, name: str) -> None:
    request = make_request(0, 1, 3, 1, 1)
    request[name].reshape(-1)[-1] = value
    with pytest.raises(BadRequests, match=f"feature '{name}'.*: the value is {value}; it must be finite"):
        batch_of(request)


def test_bytes_features_take_what_is_not_text() -> None:
    request = make_request(0, 1, 3, 1, 1) | {"raw": objects([b"\xff", b"\xc3\x28", b""], (1, 3))}
    values = batch_of(request).columns["raw"].values
    assert [values[i] for i in range(3)] == [b"\xff", b"\xc3\x28", b""]


def test_requests_are_left_as_they_were() -> None:
    requests = [make_request(seed, 2, 3, 2, 2) for seed in range(2)]
    before = [{name: array.copy() for name, array in request.items()} for request in requests]
    batch_of(*requests)
    for request, old in zip(requests, before, strict=True):
        assert all(np.array_equal(request[name], old[name]) for name in old)


def test_a_request_is_its_tensors() -> None:
    tensors = make_request(0, 1, 2, 0, 0)
    assert measure(FEATURES, tensors, MAXIMUM) == Request(tensors, 1, 2)


def test_a_string_of_megabytes_is_refused_for_its_request_only() -> None:
    feature = Feature("word", "user", "string")
    requests = [Request({"word": objects([text], (1, 1))}, 1, 1) for text in (b"x", b"y" * (MAX_TEXT + 1))]
    with pytest.raises(BadRequests) as refused:
        Batch(requests, [feature])
    assert list(refused.value.errors) == [1]
    assert f"'word': the value has {MAX_TEXT + 1} bytes; at most {MAX_TEXT}" in str(refused.value)
    assert Batch(requests[:1], [feature]).total("user") == 1
