"""Made-up requests: any plan, any seed, they fit the plan and reach what logs seldom hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.requests import count_candidates, to_tensors
from bireme.synthetic import UNKNOWN, edge_counts, make_requests
from bireme_runtime import plan as p
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.vocabulary import IntVocabulary, Vocabulary

WORDS = {"words.bin": [b"red", b"green", b"", "äöü".encode()], "few.bin": [b"red", b"blue"]}
CODES = {"codes.bin": [b"-5", b"3", b"70"]}
KEYS = WORDS | CODES
ROWS = 8


def make_plan(features: Sequence[p.Feature], steps: Sequence[p.Step], **fields: Any) -> p.Plan:
    """A plan in which every id step is embedded from one table of 8 rows."""
    blocks: list[p.Step] = []
    width = {"user": 0, "item": 0}
    by_name = {feature.name: feature for feature in features}
    for step in steps:
        feature = by_name[step.feature]  # type: ignore[union-attr]
        if isinstance(step, p.Numeric):
            blocks.append(p.Numeric(step.name, step.feature, step.chain, feature.side, width[feature.side]))
            width[feature.side] += 1
        else:
            pool = "sum" if feature.length is not None else None
            offset = width[feature.side]
            blocks.append(p.Embed(f"{step.name}.rows", step.name, "t", feature.side, offset, 2, pool))
            width[feature.side] += 2
    values: dict[str, Any] = {
        "model": "m",
        "features": tuple(features),
        "tables": (p.Table("t", "arena.bin", "float32", 2, 0, ROWS),),
        "steps": (*(step for step in steps if not isinstance(step, p.Numeric)), *blocks),
        "user_width": width["user"],
        "item_width": width["item"],
        "handover": "float32",
        "buckets": (4, 16),
        "pad": False,
    }
    return p.Plan(**(values | fields))


def run(plan: p.Plan, requests: Sequence[Mapping[str, Any]]) -> list[Features | Exception]:
    vocabularies: dict[str, Any] = {
        name: Vocabulary.build(keys, np.arange(len(keys))) for name, keys in WORDS.items()
    }
    codes = [int(key) for key in CODES["codes.bin"]]
    vocabularies["codes.bin"] = IntVocabulary.build(codes, np.arange(3))
    table = np.arange(ROWS * 2, dtype=np.float32).reshape(ROWS, 2)
    return Preprocessor(plan, {"arena.bin": table}, vocabularies).run(
        [to_tensors(plan.features, r) for r in requests]
    )


STRINGS: list[Any] = [
    lambda name: p.HashBucket(f"{name}.hash", name, ROWS),
    lambda name: p.Vocabulary(f"{name}.vocabulary", name, "words.bin", 5),
    lambda name: p.Vocabulary(f"{name}.strict", name, "words.bin", -1),
    lambda name: p.Vocabulary(f"{name}.few", name, "few.bin", -1),
]
INTEGERS: list[Any] = [
    lambda name: p.IntVocabulary(f"{name}.codes", name, "codes.bin", 4),
    lambda name: p.IntVocabulary(f"{name}.strict", name, "codes.bin", -1),
    lambda name: p.Bucketize(f"{name}.cut", name, (-3.0, 2.5, 90.0)),
    lambda name: p.Numeric(f"{name}.number", name, (), "item", 0),
    lambda name: p.Numeric(f"{name}.log", name, (("sub", 10.0), ("log", None)), "item", 0),
]
FLOATS: list[Any] = [
    lambda name: p.Bucketize(f"{name}.cut", name, (-3.0, 0.25, 90.0, float("inf"))),
    lambda name: p.Numeric(f"{name}.number", name, (), "item", 0),
    lambda name: p.Numeric(f"{name}.log1p", name, (("log1p", None),), "item", 0),
    lambda name: p.Numeric(f"{name}.root", name, (("rsub", -3.0), ("sqrt", None)), "item", 0),
    lambda name: p.Numeric(f"{name}.far", name, (("sub", 5000.0), ("log", None)), "item", 0),
    lambda name: p.Numeric(f"{name}.large", name, (("mul", 1e5),), "item", 0),
]
KINDS = {
    "string": STRINGS,
    "int32": INTEGERS,
    "int64": INTEGERS,
    "float32": FLOATS,
    "float64": FLOATS,
    "bool": [lambda name: p.Numeric(f"{name}.number", name, (), "item", 0)],
}


@st.composite
def plans(draw: st.DrawFn) -> p.Plan:
    features, steps = [], []
    for number in range(draw(st.integers(1, 5))):
        name = f"f{number}"
        side = "item" if number == 0 else draw(st.sampled_from(["user", "item"]))
        dtype = draw(st.sampled_from(sorted(KINDS)))
        chosen = [
            make(name) for make in draw(st.lists(st.sampled_from(KINDS[dtype]), max_size=2, unique=True))
        ]
        sequence = draw(st.booleans()) and not any(isinstance(step, p.Numeric) for step in chosen)
        length = (
            draw(st.sampled_from([-1, 3])) if sequence and dtype in ("string", "int32", "int64") else None
        )
        features.append(p.Feature(name, side, dtype, length))
        steps += chosen
    return make_plan(features, steps, handover=draw(st.sampled_from(["float32", "float16"])))


def impossible(plan: p.Plan) -> bool:
    """Whether a feature has transforms that no value satisfies together, or a key that no number has."""
    for feature in plan.features:
        names = {
            step.name.split(".", 1)[1] for step in plan.steps if getattr(step, "feature", "") == feature.name
        }
        if {"root", "log1p"} <= names or {"root", "far"} <= names or {"strict", "log"} <= names:
            return True
        if plan.handover == "float16" and {"far", "large"} & names and len(names) > 1:
            return True
    return False


@settings(max_examples=150, deadline=None)
@given(plans(), st.integers(0, 2**16))
def test_made_up_requests_are_accepted(plan, seed):
    counts = edge_counts(plan.buckets)
    requests = make_requests(plan, KEYS, counts, seed)
    assert [count_candidates(request) for request in requests] == counts
    if not impossible(plan):
        for result in run(plan, requests):
            assert isinstance(result, Features), result


@settings(max_examples=20, deadline=None)
@given(plans(), st.integers(0, 2**16))
def test_a_seed_says_everything(plan, seed):
    first = make_requests(plan, KEYS, [3, 5], seed)
    assert first == make_requests(plan, KEYS, [3, 5], seed)
    assert first[0] == make_requests(plan, KEYS, [3], seed)[0], "a request does not depend on those behind it"


def one(feature: p.Feature, *steps: p.Step, count: int = 4000, **fields: Any) -> list[Any]:
    """Values of one item feature."""
    (request,) = make_requests(make_plan([feature], steps, **fields), KEYS, [count])
    values: list[Any] = request["items"][feature.name]
    return values


def test_words_are_mostly_known_and_sometimes_not():
    drawn = one(p.Feature("w", "item", "string"), p.Vocabulary("w.vocabulary", "w", "words.bin", 5))
    known = set(WORDS["words.bin"])
    share = sum(word in known for word in drawn) / len(drawn)
    assert 0.9 < share < 1
    assert set(drawn) == known | set(UNKNOWN)


def test_words_that_the_original_refuses_are_not_sent():
    feature = p.Feature("w", "item", "string")
    strict = p.Vocabulary("w.strict", "w", "words.bin", -1)
    assert set(one(feature, strict)) == set(WORDS["words.bin"])
    assert set(one(feature, strict, p.Vocabulary("w.few", "w", "few.bin", -1))) == {b"red"}


def test_keys_that_are_no_text_are_sent_only_where_bytes_are_allowed(monkeypatch):
    monkeypatch.setitem(KEYS, "words.bin", [b"red", b"\xff"])
    step = p.Vocabulary("w.vocabulary", "w", "words.bin", 5)
    assert b"\xff" not in one(p.Feature("w", "item", "string"), step)
    assert b"\xff" in one(p.Feature("w", "item", "string", text="bytes"), step)


def test_sequences_are_sometimes_empty_and_of_many_lengths():
    plan = make_plan([p.Feature("w", "item", "string", -1)], [p.HashBucket("w.hash", "w", ROWS)])
    requests = make_requests(plan, {}, [2] * 300)
    lengths = {len(row) for request in requests for row in request["items"]["w"]}
    assert {0, 1} <= lengths
    assert len(lengths) > 15


def test_sequences_that_may_be_parallel_are_as_long_as_each_other():
    """No step tells that the network puts ids and their times together; unequal ones it could not take."""
    features = tuple(
        p.Feature(name, "user", "int64", length, padding=0)
        for name, length in (("ids", 12), ("times", 12), ("others", 5))
    )
    steps = [p.IdentityId(f"{feature.name}.id", feature.name) for feature in features]
    made = make_requests(make_plan(features, steps), {}, [2] * 200, seed=3)
    lengths = [tuple(len(request["user"][f.name]) for f in features) for request in made]
    assert all(ids == times for ids, times, _ in lengths)
    assert {ids for ids, _, _ in lengths} == set(range(1, 13))
    assert {(ids, others) for ids, _, others in lengths} >= {(12, 1), (1, 5), (3, 4)}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_reach_every_row_key_and_edge(dtype):
    feature = p.Feature("c", "item", dtype)
    assert set(one(feature, p.IdentityId("c.row", "c"))) == set(range(ROWS))
    codes = set(one(feature, p.IntVocabulary("c.codes", "c", "codes.bin", 4)))
    assert {-5, 3, 70} < codes
    assert {1, 2, 3, 89, 90, 91} <= set(one(feature, p.Bucketize("c.cut", "c", (2.5, 90.0))))
    assert all(isinstance(value, int) for value in codes)


def test_floats_reach_the_edges_exactly():
    edges = (0.1, 2.5)
    drawn = np.array(one(p.Feature("x", "item", "float32"), p.Bucketize("x.cut", "x", edges)), np.float32)
    for edge in np.array(edges, np.float32):
        assert (drawn == edge).any()
    assert (drawn >= 0).all()


def test_booleans_are_both():
    assert set(one(p.Feature("b", "item", "bool"))) == {True, False}


@pytest.mark.parametrize(
    ("buckets", "counts"),
    [
        ((64, 128), [1, 63, 64, 65, 127, 128]),
        ((1,), [1]),
        ((1, 2, 3), [1, 2, 3]),
        ((5,), [1, 4, 5]),
    ],
)
def test_counts_around_every_bucket(buckets, counts):
    assert edge_counts(buckets) == counts
