"""Requests made up from a feature plan: known and unknown strings, empty histories, numbers, any N.

They reach what logged requests seldom do: bucket edges, words that no vocabulary holds, empty sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.requests import Request
from bireme_runtime.plan import Bucketize, Embed, Feature, IdentityId, IntVocabulary, Plan, Vocabulary

__all__ = ["edge_counts", "make_requests"]

#: Strings that must not be confused with any known one: empty, non-ASCII, with a NUL, long.
UNKNOWN = (b"", "ключ".encode(), "未知".encode(), b"a\0", b"x" * 70, b"?")


def edge_counts(buckets: Sequence[int]) -> list[int]:
    """1, and b−1, b, b+1 around every bucket, as far as a request may go."""
    around = {1, *(bucket + d for bucket in buckets for d in (-1, 0, 1))}
    return sorted(count for count in around if 1 <= count <= buckets[-1])


def make_requests(
    plan: Plan, words: Mapping[str, Sequence[bytes]], counts: Sequence[int], seed: int = 0
) -> list[Request]:
    """One request for each entry of `counts`.

    Args:
        plan: the feature plan.
        words: vocabulary file → its keys (bytes, or decimal text for integer keys).
        counts: N of each request.
        seed: same seed, same requests.
    """
    rng = np.random.default_rng(seed)
    return [_request(plan, words, count, rng) for count in counts]


def _request(
    plan: Plan, words: Mapping[str, Sequence[bytes]], count: int, rng: np.random.Generator
) -> Request:
    request: dict[str, dict[str, Any]] = {"user": {}, "items": {}}
    for feature in plan.features:
        values = _values(plan, feature, words, count if feature.side == "item" else 1, rng)
        if feature.side == "item":
            request["items"][feature.name] = values
        else:
            request["user"][feature.name] = values[0]
    return request


def _values(
    plan: Plan, feature: Feature, words: Mapping[str, Sequence[bytes]], rows: int, rng: np.random.Generator
) -> list[Any]:
    if feature.length is None:
        return _draw(plan, feature, words, rows, rng)
    length = feature.length if feature.length >= 0 else int(rng.integers(0, 25))
    flat = _draw(plan, feature, words, rows * length, rng)
    return [flat[row * length : (row + 1) * length] for row in range(rows)]


def _draw(
    plan: Plan, feature: Feature, words: Mapping[str, Sequence[bytes]], count: int, rng: np.random.Generator
) -> list[Any]:
    steps = [step for step in plan.steps if getattr(step, "feature", None) == feature.name]
    if feature.dtype == "string":
        known = [key for step in steps if isinstance(step, Vocabulary) for key in words[step.file]]
        return _strings(known, count, rng)
    if feature.dtype.startswith("int"):
        tables = {table.name: table.rows for table in plan.tables}
        ids = {step.name for step in steps if isinstance(step, IdentityId)}
        sizes = [tables[s.table] for s in plan.steps if isinstance(s, Embed) and s.ids in ids]
        keys = [int(key) for step in steps if isinstance(step, IntVocabulary) for key in words[step.file]]
        drawn = rng.integers(0, min(sizes, default=50), count)
        if keys:
            drawn = np.where(rng.random(count) < 0.8, rng.choice(keys, count), drawn)
        return [int(value) for value in drawn]
    edges = [edge for step in steps if isinstance(step, Bucketize) for edge in step.edges]
    numbers = rng.gamma(1.0, 1.5, count).astype(np.float32)  # non-negative: log1p and sqrt stay finite
    if edges:
        numbers = np.where(
            rng.random(count) < 0.3, rng.choice(np.array(edges, dtype=np.float32), count), numbers
        )
    return [float(value) for value in numbers]


def _strings(known: Sequence[bytes], count: int, rng: np.random.Generator) -> list[bytes]:
    pool = list(known) or [b"%032x" % int(x) for x in rng.integers(0, 2**62, 40)]
    drawn = [pool[i] for i in rng.integers(0, len(pool), count)]
    for i in np.flatnonzero(rng.random(count) < 0.05):
        drawn[i] = UNKNOWN[int(rng.integers(len(UNKNOWN)))]
    return drawn
