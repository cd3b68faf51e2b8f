"""What production may do to the kernel and random requests do not: threads, odd bytes, several faults."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_library import kernel
from kernel_plans import random_plan, random_request
from runtime_plans import objects

from bireme_runtime.plan import Embed, Feature, HashBucket, IdentityId, Numeric, Plan, Table
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.text_steps import Element
from bireme_runtime.wire import Payload, payload_of

TABLE = Table("rows", "arena.bin", "float32", 16, 0, 9)
ARENAS = {"arena.bin": np.arange(9 * 16, dtype=np.float32).reshape(9, 16)}


def _plan(features: tuple[Feature, ...], *steps: Any, width: int) -> Plan:
    return Plan("odd", features, (TABLE,), steps, 0, width, "float32", (8,), pad=False)


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_share_a_preprocessor_get_their_own_results(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, arenas, vocabularies = random_plan(seed)
    shared = Preprocessor(plan, arenas, vocabularies, library=kernel("baseline", monkeypatch))
    rng = np.random.default_rng(seed)
    requests = [random_request(plan, rng) for _ in range(8)]
    wanted = [shared.run([request])[0] for request in requests]
    faults: list[str] = []

    def work(first: int) -> None:
        for turn in range(60):
            index = (first + turn) % len(requests)
            (found,), theirs = shared.run([requests[index]]), wanted[index]
            if isinstance(found, Features) and isinstance(theirs, Features):
                pairs = ((found.user, theirs.user), (found.items, theirs.items))
                if not all(np.array_equal(mine, its) for mine, its in pairs):
                    faults.append(f"values of request {index}")
            elif str(found) != str(theirs):
                faults.append(str(found))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_what_is_true_but_not_1_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may send any byte for a bool, and Triton hands it on."""
    plan = _plan(
        (Feature("x", "item", "bool"),),
        Numeric("x.number", "x", (), "item", 0),
        IdentityId("x.id", "x"),
        Embed("x.rows", "x.id", "rows", "item", 1, 16),
        width=17,
    )
    mine = Preprocessor(plan, ARENAS, {}, library=kernel("baseline", monkeypatch))
    (found,) = mine.run([{"x": np.frombuffer(bytes([0, 1, 2, 255]), np.bool_).reshape(1, 4)}])
    assert isinstance(found, Features)
    assert found.items[0, :, :2].tolist() == [[0, 0], [1, 16], [1, 16], [1, 16]]


@pytest.mark.parametrize("sent", [0, 1, 2, 3])
@pytest.mark.parametrize("native", [False, True])
def test_short_sequences_of_strings_are_filled_up_as_they_travel(
    sent: int, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _plan(
        (Feature("x", "item", "string", 3, padding="-"),),
        HashBucket("x.id", "x", 9),
        Embed("x.rows", "x.id", "rows", "item", 0, 48),
        width=48,
    )
    words = [b"a", b"", b"ccc", b"x" * 300, b"\0\0\0\0", b"f"]
    rows = [words[3 * k : 3 * k + sent] for k in range(2)]
    short = objects([word for row in rows for word in row], (1, 2, sent))
    full = objects([word for row in rows for word in [*row, *[b"-"] * (3 - sent)]], (1, 2, 3))
    tensor = Payload(payload_of(short)).reshape(short.shape)
    library = kernel("baseline", monkeypatch) if native else None
    tested = Preprocessor(plan, ARENAS, {}, library=library)
    wanted = Preprocessor(plan, ARENAS, {}).run([{"x": full}, {"x": full}])
    for found, theirs in zip(tested.run([{"x": tensor}, {"x": short}]), wanted, strict=True):
        assert isinstance(found, Features)
        assert isinstance(theirs, Features)
        np.testing.assert_array_equal(found.items, theirs.items)


def test_of_two_faults_the_same_one_is_named_whoever_does_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of `late` is numpy's, `early` is the kernel's; numpy alone looks at `early` first."""
    plan = _plan(
        (Feature("early", "item", "float32"), Feature("late", "item", "int64", 3)),
        Numeric("early.number", "early", (), "item", 0),
        Element("late.element", "late", 1, 3),
        Embed("late.rows", "late.element", "rows", "item", 1, 16),
        width=17,
    )
    mine = Preprocessor(plan, ARENAS, {}, library=kernel("baseline", monkeypatch))
    assert mine.kernel is not None
    assert mine.kernel.program.left
    good = {"early": np.ones((1, 1), np.float32), "late": np.ones((1, 1, 3), np.int64)}
    bad = {"early": np.full((1, 1), np.nan, np.float32), "late": np.full((1, 1, 3), 99)}
    for requests in ([good, bad, good], [good, {**bad, "early": good["early"]}, good]):
        found, theirs = mine.run(requests), Preprocessor(plan, ARENAS, {}).run(requests)
        assert isinstance(found[0], Features)
        assert isinstance(found[2], Features)
        assert str(found[1]) == str(theirs[1])


def test_a_damaged_plan_sends_the_kernel_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    library = kernel("baseline", monkeypatch)
    feature, ids = Feature("x", "item", "int64", -1), IdentityId("x.id", "x")
    embed = Embed("x.rows", "x.id", "rows", "item", 0, 16, "sum")
    good = _plan((feature,), ids, embed, width=16)
    assert Preprocessor(good, ARENAS, {}, library=library).kernel is not None
    damaged = {
        "step 'x.rows' writes outside its output": replace(good, steps=(ids, replace(embed, offset=1))),
        "step 'x.rows' writes outside": replace(good, steps=(ids, replace(embed, offset=-1))),
        "step 'x.rows' fills up with row 9 of 9": replace(good, steps=(ids, replace(embed, fill=9))),
        "table 'rows' lies outside its arena": replace(good, tables=(replace(TABLE, rows=10),)),
        "table 'rows' lies outside": replace(good, tables=(replace(TABLE, row_offset=-1),)),
    }
    for said, plan in damaged.items():
        with pytest.raises(ValueError, match=f"{said}.*rebuild the repository"):
            Preprocessor(plan, ARENAS, {}, library=library)


def test_none_is_a_feature_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(
        (Feature("x", "item", "float32"), Feature("y", "item", "float32", default=3.0)),
        Numeric("x.number", "x", (), "item", 0),
        Numeric("y.number", "y", (), "item", 1),
        width=2,
    )
    mine = Preprocessor(plan, ARENAS, {}, library=kernel("baseline", monkeypatch))
    one: Any = np.ones((1, 1), np.float32)
    found = mine.run([{"x": one, "y": None}, {"x": None, "y": one}])  # type: ignore[dict-item]
    assert isinstance(found[0], Features)
    assert found[0].items.tolist() == [[[1, 3]]]
    assert str(found[1]) == "feature 'x' is missing and has no default"
