"""Buckets: which one a request falls into, how requests of one are padded, run together and trimmed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def bucket_for(candidates: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `candidates`.

    Args:
        candidates: N of a request.
        buckets: ascending candidate counts.

    Raises:
        ValueError: N is 0 or above the largest bucket.
    """
    if not 1 <= candidates <= buckets[-1]:
        raise ValueError(f"{candidates} candidates; a request must have 1 to {buckets[-1]}")
    return buckets[bisect_left(buckets, candidates)]


def whole_lists_only(lengths: Sequence[int]) -> str:
    """What a request with another number of candidates is told, by a model that ranks a list as a whole."""
    allowed = ", ".join(map(str, lengths))
    return f"this model ranks a list as a whole, so a request must have exactly one of: {allowed}"


def group_by_bucket(
    candidates: Sequence[int], buckets: Sequence[int], listwise: bool = False
) -> tuple[dict[int, list[int]], dict[int, str]]:
    """Which requests run together, and which cannot run at all.

    Args:
        candidates: N of each request.
        buckets: ascending candidate counts.
        listwise: whether the model ranks a list as a whole: then padding would change the scores.

    Returns:
        Bucket → indices of its requests in arrival order; index of each other request → what is wrong.
    """
    groups: dict[int, list[int]] = {}
    errors = {}
    for index, count in enumerate(candidates):
        if listwise and count not in buckets:
            errors[index] = f"{count} candidates; {whole_lists_only(buckets)}"
            continue
        try:
            groups.setdefault(bucket_for(count, buckets), []).append(index)
        except ValueError as error:
            errors[index] = str(error)
    return groups, errors


def pad_together(items: Sequence[Array], bucket: int) -> Array:
    """Stack requests of one bucket; the rows behind each request's candidates are 0.

    Args:
        items: arrays [users, candidates, width], each with its own users and candidates ≤ bucket.
        bucket: candidates of the result.

    Returns:
        [sum of users, bucket, width], dtype of the first array.
    """
    if len(items) == 1 and items[0].shape[1] == bucket:
        return items[0]
    users = sum(array.shape[0] for array in items)
    result = np.empty((users, bucket, items[0].shape[2]), dtype=items[0].dtype)
    first = 0
    for array in items:
        last, count = first + array.shape[0], array.shape[1]
        result[first:last, :count] = array
        result[first:last, count:] = 0
        first = last
    return result


def trim_apart(scores: Array, users: Sequence[int], candidates: Sequence[int]) -> list[Array]:
    """Undo `pad_together` for the scores.

    Args:
        scores: [sum of users, bucket].
        users: users of each request.
        candidates: N of each request.

    Returns:
        For each request its scores [users, N], contiguous.
    """
    ends = np.cumsum(users)
    return [
        np.ascontiguousarray(scores[end - count : end, :n])
        for end, count, n in zip(ends, users, candidates, strict=True)
    ]
