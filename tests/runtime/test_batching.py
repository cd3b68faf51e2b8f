"""Buckets: whatever is padded together comes apart again, and padding is zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme_runtime.batching import bucket_for, group_by_bucket, pad_together, trim_apart

BUCKETS = st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True).map(sorted)
DTYPES = st.sampled_from(["float32", "float16", "float64", "int32"])


@st.composite
def requests_of_one_bucket(draw: st.DrawFn) -> tuple[list[np.ndarray[Any, Any]], int]:
    """Arrays [users, candidates, width] and a bucket that holds them; no value is 0."""
    bucket, width, dtype = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(DTYPES)
    shapes = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, bucket)), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return [rng.integers(1, 50, (users, count, width)).astype(dtype) for users, count in shapes], bucket


@given(BUCKETS, st.data())
def test_the_bucket_is_the_smallest_that_holds_the_candidates(
    buckets: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, buckets[-1]))
    assert bucket_for(count, buckets) == min(bucket for bucket in buckets if bucket >= count)


@given(BUCKETS, st.data())
def test_what_no_bucket_holds_is_refused_with_the_maximum(buckets: list[int], data: st.DataObject) -> None:
    count = data.draw(st.one_of(st.integers(max_value=0), st.integers(min_value=buckets[-1] + 1)))
    with pytest.raises(ValueError, match=rf"^{count} candidates; a request must have 1 to {buckets[-1]}$"):
        bucket_for(count, buckets)


@given(BUCKETS, st.lists(st.integers(-1, 45), max_size=20))
def test_every_request_is_in_one_group_or_has_an_error(buckets: list[int], counts: list[int]) -> None:
    groups, errors = group_by_bucket(counts, buckets)
    placed = {index: bucket for bucket, group in groups.items() for index in group}
    assert sorted([*placed, *errors]) == list(range(len(counts)))
    assert all(bucket_for(counts[index], buckets) == bucket for index, bucket in placed.items())
    assert all(group == sorted(group) for group in groups.values())  # arrival order
    assert all(str(counts[index]) in errors[index] for index in errors)


@given(requests_of_one_bucket())
def test_padding_is_zeros_and_keeps_values_and_dtype(case: tuple[list[np.ndarray[Any, Any]], int]) -> None:
    arrays, bucket = case
    before = [array.copy() for array in arrays]
    padded = pad_together(arrays, bucket)
    assert padded.shape == (sum(len(array) for array in arrays), bucket, arrays[0].shape[2])
    assert padded.dtype == arrays[0].dtype
    first = 0
    for array in arrays:
        rows = padded[first : first + len(array)]
        assert np.array_equal(rows[:, : array.shape[1]], array)
        assert not rows[:, array.shape[1] :].any()
        first += len(array)
    assert all(np.array_equal(array, old) for array, old in zip(arrays, before, strict=True))


@given(requests_of_one_bucket())
def test_scores_come_back_to_their_requests(case: tuple[list[np.ndarray[Any, Any]], int]) -> None:
    arrays, bucket = case
    scores = pad_together(arrays, bucket)[:, :, 0]
    users, counts = [len(array) for array in arrays], [array.shape[1] for array in arrays]
    parts = trim_apart(scores, users, counts)
    for part, array in zip(parts, arrays, strict=True):
        assert np.array_equal(part, array[:, :, 0])
        assert part.dtype == array.dtype
        assert part.flags.c_contiguous  # Triton copies the buffer as it lies


@given(requests_of_one_bucket())
def test_one_request_cannot_write_into_anothers_scores(
    case: tuple[list[np.ndarray[Any, Any]], int],
) -> None:
    arrays, bucket = case
    scores = pad_together(arrays, bucket)[:, :, 0].copy()
    parts = trim_apart(scores, [len(array) for array in arrays], [array.shape[1] for array in arrays])
    rest = [part.copy() for part in parts[1:]]
    parts[0][...] = 0
    assert all(np.array_equal(part, old) for part, old in zip(parts[1:], rest, strict=True))


def test_a_request_that_fills_its_bucket_is_not_copied() -> None:
    array = np.ones((2, 8, 3), np.float32)
    assert pad_together([array], 8) is array
    assert not np.shares_memory(pad_together([array], 9), array)


def test_users_and_candidates_must_belong_together() -> None:
    with pytest.raises(ValueError, match="zip"):
        trim_apart(np.zeros((2, 4)), [1, 1], [4])


@given(BUCKETS, st.lists(st.integers(-1, 45), max_size=20))
def test_a_whole_list_is_never_padded(buckets: list[int], counts: list[int]) -> None:
    groups, errors = group_by_bucket(counts, buckets, listwise=True)
    placed = {index: bucket for bucket, group in groups.items() for index in group}
    assert placed == {index: count for index, count in enumerate(counts) if count in buckets}
    assert sorted([*placed, *errors]) == list(range(len(counts)))
    assert all(f"{counts[i]} candidates; this model ranks a list as a whole" in errors[i] for i in errors)
