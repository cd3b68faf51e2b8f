"""What `verify` sends: every bucket edge, known and unknown strings, empty sequences; the same each time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bireme.requests import count_candidates, to_tensors
from bireme.synthetic import edge_counts
from bireme.verify.sampling import sample_requests
from bireme_runtime.plan import Embed, Feature, Numeric, Plan, Table, Vocabulary

WORDS = [b"shoe", b"hat", b"coat"]
PLAN = Plan(
    model="shop",
    features=(
        Feature("seen", "user", "string", -1, default=[]),
        Feature("item", "item", "string"),
        Feature("price", "item", "float32"),
    ),
    tables=(Table("words", "arena.bin", "float32", 2, 0, 4),),
    steps=(
        Vocabulary("seen.word", "seen", "words.bin", 0),
        Vocabulary("item.word", "item", "words.bin", 0),
        Embed("seen", "seen.word", "words", "user", 0, 2, "mean"),
        Embed("item", "item.word", "words", "item", 0, 2),
        Numeric("price", "price", (("log1p", None),), "item", 2),
    ),
    user_width=2,
    item_width=3,
    handover="float32",
    buckets=(4, 16),
    pad=False,
)
LOGGED: list[Any] = [
    {"user": {"seen": []}, "items": {"item": ["shoe"] * 7, "price": [float(k)] * 7}} for k in range(3)
]


def sample(count: int = 400, recorded: Any = LOGGED, seed: int = 0) -> list[Any]:
    return sample_requests(PLAN, {"words.bin": WORDS}, recorded, count, seed)


@pytest.mark.parametrize("buckets", [(4, 16), (1,), (1, 2, 3), (64, 128)])
def test_edges_are_one_and_around_every_bucket_within_the_maximum(buckets: tuple[int, ...]) -> None:
    found = edge_counts(buckets)
    near = {bucket + d for bucket in buckets for d in (-1, 0, 1)} | {1}
    assert found == sorted(found)
    assert set(found) == {count for count in near if 1 <= count <= buckets[-1]}


@pytest.mark.parametrize("count", [1, 3, 50, 400])
def test_as_many_as_asked_for(count: int) -> None:
    assert len(sample(count)) == count
    assert len(sample(count, recorded=[])) == count


def test_every_edge_is_sent() -> None:
    assert {count_candidates(request) for request in sample()} >= set(edge_counts(PLAN.buckets))


def test_a_quarter_are_the_recorded_ones() -> None:
    requests = sample()
    assert sum(any(request is logged for logged in LOGGED) for request in requests) == len(requests) // 4


def test_mixed_so_that_parallel_requests_differ() -> None:
    counts = [count_candidates(request) for request in sample()]
    assert sum(a != b for a, b in pairwise(counts)) > len(counts) / 2


def test_known_and_unknown_strings_empty_and_long_sequences() -> None:
    requests = sample(recorded=[])
    items = {text for request in requests for text in request["items"]["item"]}
    assert items > set(WORDS)
    assert b"" in items
    lengths = {len(request["user"]["seen"]) for request in requests}
    assert 0 in lengths
    assert max(lengths) > 10


def test_the_same_seed_gives_the_same_requests() -> None:
    assert sample() == sample()
    assert sample() != sample(seed=1)


def test_what_is_made_up_can_be_sent() -> None:
    for request in sample(50, recorded=[]):
        tensors = to_tensors(PLAN.features, request)
        assert tensors["price"].shape == tensors["item"].shape == (1, count_candidates(request))
