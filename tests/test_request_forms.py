"""Requests as people write them, as Triton's tensors, and as the original model's rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ClientError, SpecError
from bireme.requests import count_candidates, read_requests, to_rows, to_tensors
from bireme_runtime.plan import Feature
from bireme_runtime.requests import measure

LENGTHS = st.sampled_from([None, -1, 1, 3])
DTYPES = ("string", "int32", "int64", "float32", "float64", "bool")
LIMITS = {"int32": 2**31, "int64": 2**63}


def element(dtype: str) -> st.SearchStrategy[Any]:
    if dtype == "string":
        return st.text(max_size=6) | st.binary(max_size=6)
    if dtype == "bool":
        return st.booleans()
    if dtype in LIMITS:
        return st.integers(-LIMITS[dtype], LIMITS[dtype] - 1)
    return st.floats(allow_nan=False, width=32 if dtype == "float32" else 64)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Feature], dict[str, dict[str, Any]]]:
    """Features, one of them a candidate's and without default, and a request that fits them."""
    count = draw(st.integers(1, 4))
    features, request = [], {"user": {}, "items": {}}
    for number in range(draw(st.integers(1, 5))):
        side = "item" if number == 0 else draw(st.sampled_from(["user", "item"]))
        dtype, length = draw(st.sampled_from(DTYPES)), draw(LENGTHS)
        size = draw(st.integers(0, 3)) if length == -1 else length
        one = element(dtype) if size is None else st.lists(element(dtype), min_size=size, max_size=size)
        default = draw(st.none() | one) if number else None
        features.append(Feature(f"f{number}", side, dtype, length, default))
        if default is None or draw(st.booleans()):
            values = draw(st.lists(one, min_size=count, max_size=count))
            request["items" if side == "item" else "user"][f"f{number}"] = (
                values if side == "item" else values[0]
            )
    return features, request


def encoded(value: Any) -> Any:
    if isinstance(value, list):
        return [encoded(item) for item in value]
    return value.encode() if isinstance(value, str) else value


@given(cases())
def test_tensors_have_the_shapes_that_the_server_takes(case):
    features, request = case
    tensors = to_tensors(features, request)
    assert set(tensors) == set(request["user"]) | set(request["items"])
    measured = measure(features, tensors, 4)
    assert measured.users == 1
    assert measured.candidates == count_candidates(request)
    for feature in features:
        if feature.name in tensors:
            array = tensors[feature.name]
            assert array.dtype == (object if feature.dtype == "string" else feature.dtype)
            assert array.shape[0] == 1


@given(cases())
def test_rows_hold_what_was_sent_and_the_user_once_per_candidate(case):
    features, request = case
    rows, count = to_rows(features, request), count_candidates(request)
    for feature in features:
        part = request["user" if feature.side == "user" else "items"]
        given_value = part.get(feature.name, feature.default)
        per_row = feature.side == "item" and feature.name in part
        wanted = encoded(given_value if per_row else [given_value] * count)
        values = rows[feature.name]
        assert values.shape[0] == count
        assert values.dtype == (object if feature.dtype == "string" else feature.dtype)
        assert values.tolist() == np.array(wanted, dtype=values.dtype).tolist()
        assert values.flags.writeable


@given(cases())
def test_tensors_and_rows_agree(case):
    features, request = case
    tensors, rows = to_tensors(features, request), to_rows(features, request)
    for name, tensor in tensors.items():
        feature = next(f for f in features if f.name == name)
        first = tensor[0] if feature.side == "item" or feature.length is not None else tensor[0, 0]
        for row, values in enumerate(rows[name]):
            expected = first[row] if feature.side == "item" else first
            assert np.array_equal(np.asarray(values), np.asarray(expected))


@given(cases())
def test_what_was_given_is_not_changed(case):
    features, request = case
    before = repr(request)
    to_tensors(features, request)
    to_rows(features, request)
    assert repr(request) == before


USER = Feature("user_age", "user", "int32")
PRICE = Feature("price", "item", "float32")
WORDS = Feature("words", "user", "string", -1)
TAGS = Feature("tags", "item", "string", 2)
FLAG = Feature("flag", "item", "bool")
FEATURES = [USER, PRICE, WORDS, TAGS, FLAG]


@pytest.mark.parametrize(
    ("user", "items", "said"),
    [
        ({"user_age": "old"}, {}, "int32"),
        ({"user_age": 3.5}, {}, "int32"),
        ({"user_age": 2**31}, {}, "2147483648 does not fit"),
        ({"user_age": 2**80}, {}, "int32"),
        ({"user_age": None}, {}, "int32"),
        ({"user_age": [1]}, {}, "1 dimensions (give one value)"),
        ({"words": "a"}, {}, "0 dimensions (give a list)"),
        ({"words": [["a"]]}, {}, "2 dimensions (give a list)"),
        ({"words": ["a", 5]}, {}, "holds int where strings are expected"),
        ({"words": ["a", None]}, {}, "holds NoneType"),
        ({"words": ["\ud800"]}, {}, "does not hold strings"),
        ({}, {"price": 1.0}, "0 dimensions (give a list)"),
        ({}, {"price": ["1"]}, "float32"),
        ({}, {"price": [1e39]}, "1e+39 does not fit"),
        ({}, {"price": [[1.0], [2.0, 3.0]]}, "float32"),
        ({}, {"price": {"a": 1.0}}, "float32"),
        ({}, {"tags": ["a", "b"]}, "1 dimensions (give a list of lists of equal length)"),
        ({}, {"tags": [["a", "b"], ["c"]]}, "lists of unequal length"),
        ({}, {"flag": [2]}, "2 does not fit"),
        ({}, {"flag": ["yes"]}, "bool"),
        ({"price": 1.0}, {}, "it belongs under 'items'"),
        ({}, {"words": ["a"]}, "it belongs under 'user'"),
        ({"word": ["a"]}, {}, "did you mean 'words'?"),
        ({}, {"colour": ["red"]}, "items takes: price, tags, flag"),
    ],
)
def test_value_that_does_not_fit_is_named(user, items, said):
    with pytest.raises(ClientError) as caught:
        to_tensors(FEATURES, {"user": user, "items": items})
    name = next(iter({**user, **items}))
    assert caught.value.where == f"feature '{name}'"
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arrays_and_other_number_types_are_taken():
    request = {
        "user": {"user_age": np.int64(7), "words": ("a", b"\xff")},
        "items": {
            "price": np.array([1, 2], np.int16),
            "flag": np.array([0, 1]),
            "tags": np.array([["a", "b"]] * 2),
        },
    }
    tensors = to_tensors(FEATURES, request)
    assert tensors["user_age"].tolist() == [[7]]
    assert tensors["words"].tolist() == [[b"a", b"\xff"]]
    assert tensors["price"].dtype == np.float32
    assert tensors["flag"].tolist() == [[False, True]]
    assert tensors["tags"].tolist() == [[[b"a", b"b"], [b"a", b"b"]]]


def test_numbers_that_are_not_finite_are_left_to_the_server():
    """It refuses them with the candidate's number; here they only have to arrive as they are."""
    tensors = to_tensors([PRICE], {"user": {}, "items": {"price": [float("nan"), float("inf"), 1e38]}})
    assert np.isnan(tensors["price"][0, 0])
    assert np.isinf(tensors["price"][0, 1])


@pytest.mark.parametrize(
    ("items", "count"),
    [
        ({}, 0),
        ({"price": []}, 0),
        ({"price": [1, 2]}, 2),
        ({"a": "text", "b": [1] * 5}, 5),
        ({"p": np.ones(3)}, 3),
    ],
)
def test_candidates_are_counted_by_the_first_list(items, count):
    assert count_candidates({"user": {}, "items": items}) == count


def test_requests_are_read_line_by_line(tmp_path):
    path = tmp_path / "requests.jsonl"
    first, second = {"user": {"a": 1}, "items": {}}, {"user": {}, "items": {"ключ": ["é"]}, "note": "kept"}
    path.write_text(json.dumps(first) + "\n\n  \n" + json.dumps(second, ensure_ascii=False), encoding="utf-8")
    assert read_requests(path) == [first, second]
    path.write_text("", encoding="utf-8")
    assert read_requests(path) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not JSON"),
        ("user: {}", "is not JSON"),
        ("[]", "is not a request"),
        ("5", "is not a request"),
        ('{"user": {}}', "is not a request"),
        ('{"user": [], "items": {}}', "is not a request"),
        ('{"user": {}, "items": null}', "is not a request"),
    ],
)
def test_bad_line_is_named_by_its_number(tmp_path, line, said):
    path = tmp_path / "requests.jsonl"
    path.write_text('{"user": {}, "items": {}}\n\n' + line + "\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_requests(path)
    assert caught.value.where == f"{path}:3"
    assert said in caught.value.message


def test_file_of_requests_that_cannot_be_read(tmp_path):
    with pytest.raises(SpecError, match="No such file"):
        read_requests(tmp_path / "nothing.jsonl")
    with pytest.raises(SpecError, match="cannot be read"):
        read_requests(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_requests(tmp_path / "binary")
