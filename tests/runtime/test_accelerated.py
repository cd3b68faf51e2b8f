"""The C kernel against the numpy kernels, which the other tests hold against TensorFlow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_library import VARIANTS, kernel
from kernel_plans import random_plan, random_request
from runtime_plans import OPTIONAL, make_request, objects, write_plan

import bireme_runtime.accelerated as accelerated
from bireme_runtime.plan import (
    Admitted,
    Counted,
    Embed,
    Feature,
    HashBucket,
    IdentityId,
    Mask,
    Numeric,
    Plan,
    Table,
)
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.text_steps import Compute, Cross, Element


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the kernel did a batch, and how often it left it to numpy."""
    counter: Counter[str] = Counter()
    original = accelerated.Accelerated.run

    def run(self: Any, *args: Any) -> Any:
        try:
            result = original(self, *args)
        except accelerated.Unusual:
            counter["left"] += 1
            raise
        counter["done"] += 1
        return result

    monkeypatch.setattr(accelerated.Accelerated, "run", run)
    return counter


def _close(mine: Features, theirs: Features, where: str) -> None:
    """Equal but for the order in which a pool adds up and the last bits of a logarithm."""
    assert mine.candidates == theirs.candidates
    for name in ("user", "items"):
        a, b = getattr(mine, name), getattr(theirs, name)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        tolerance = 2e-3 if a.dtype == np.float16 else 4e-6
        np.testing.assert_allclose(
            a.astype(np.float64),
            b.astype(np.float64),
            rtol=tolerance,
            atol=tolerance,
            err_msg=f"{where} {name}",
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_random_plans_give_what_numpy_gives(
    variant: str, monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    library = kernel(variant, monkeypatch)
    errors = 0
    for seed in range(150):
        plan, arenas, vocabularies = random_plan(seed)
        mine = Preprocessor(plan, arenas, vocabularies, library=library, reuse=True)
        theirs = Preprocessor(plan, arenas, vocabularies)
        assert mine.kernel is not None
        assert not mine.kernel.program.left
        rng = np.random.default_rng(seed + 1_000_000)
        requests = [random_request(plan, rng) for _ in range(int(rng.integers(1, 4)))]
        before = outcomes["left"]
        found, expected = mine.run(requests), theirs.run(requests)
        if outcomes["left"] > before:  # only where there is something to refuse
            assert any(isinstance(b, ValueError) for b in expected), seed
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            if isinstance(b, Features):
                assert isinstance(a, Features)
                _close(a, b, f"plan {seed}, request {number}")
            else:
                errors += 1
                assert str(a) == str(b)
    assert outcomes["done"] > 100  # the kernel did most of it
    assert errors < 100


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("handover", ["float32", "float16"])
@pytest.mark.parametrize("pad", [False, True])
def test_a_plan_with_every_step(
    variant: str,
    handover: Any,
    pad: bool,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: Counter[str],
) -> None:
    library = kernel(variant, monkeypatch)
    write_plan(tmp_path)
    plain = Preprocessor.open(tmp_path)
    plan = replace(plain.plan, handover=handover, pad=pad)
    theirs = Preprocessor(plan, plain._arenas, plain._vocabularies)
    mine = Preprocessor(plan, plain._arenas, plain._vocabularies, library=library, reuse=True)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        left_out = OPTIONAL if seed % 4 == 0 else ()
        requests = [
            make_request(
                seed * 10 + i,
                *map(int, rng.integers(1, (4, 10))),
                seen=seed % 5,
                tags=seed % 3,
                left_out=left_out,
            )
            for i in range(seed % 3 + 1)
        ]
        for a, b in zip(mine.run(requests), theirs.run(requests), strict=True):
            assert isinstance(a, Features)
            assert isinstance(b, Features)
            _close(a, b, f"seed {seed}")
    assert outcomes == {"done": 30}


TABLE = Table("rows", "arena.bin", "float32", 16, 0, 9)


def _one(feature: Feature, *steps: Any, width: int = 16, handover: Any = "float32") -> Plan:
    return Plan("one", (feature,), (TABLE,), steps, 0, width, handover, (8,), pad=False)


def _two(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> tuple[Preprocessor, Preprocessor]:
    arenas = {"arena.bin": np.arange(9 * 16, dtype=np.float32).reshape(9, 16)}
    library = kernel("baseline", monkeypatch)
    return Preprocessor(plan, arenas, {}, library=library), Preprocessor(plan, arenas, {})


@pytest.mark.parametrize("bad", [9, -1, 2**62, -(2**63)])
def test_an_id_out_of_range_is_refused_alone(bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _one(
        Feature("x", "item", "int64"), IdentityId("x.id", "x"), Embed("x.rows", "x.id", "rows", "item", 0, 16)
    )
    mine, theirs = _two(plan, monkeypatch)
    requests = [{"x": np.array([[1, 2]])}, {"x": np.array([[1, bad, 3]])}, {"x": np.array([[8]])}]
    found = mine.run(requests)
    assert [str(f) if isinstance(f, ValueError) else f.candidates for f in found] == [
        2,
        f"feature 'x', candidate 1: the value gives id {bad}; table 'rows' has rows 0 to 8",
        1,
    ]
    assert str(found[1]) == str(theirs.run(requests)[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _one(Feature("x", "item", "float32"), Numeric("x.number", "x", (), "item", 0), width=1)
    mine, _ = _two(plan, monkeypatch)
    found = mine.run([{"x": np.array([[1.0, bad]], np.float32)}, {"x": np.array([[2.0]], np.float32)}])
    assert str(found[0]) == f"feature 'x', candidate 1: the value is {np.float32(bad)}; it must be finite"
    assert isinstance(found[1], Features)


def test_what_the_hand_over_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    feature, step = Feature("x", "item", "float32"), Numeric("x.number", "x", (("mul", 2.0),), "item", 0)
    mine, _ = _two(_one(feature, step, width=1, handover="float16"), monkeypatch)
    found = mine.run([{"x": np.array([[32752.0]], np.float32)}, {"x": np.array([[32768.0]], np.float32)}])
    assert isinstance(found[0], Features)
    assert found[0].items[0, 0, 0] == 65504
    assert "65536" in str(found[1])


@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ab\xe2\x82", b"\x80"]
)
def test_text_that_is_not_utf8_is_refused(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _one(
        Feature("x", "item", "string"),
        HashBucket("x.id", "x", 9),
        Embed("x.rows", "x.id", "rows", "item", 0, 16),
    )
    mine, _ = _two(plan, monkeypatch)
    good = objects([b"a", "é".encode()], (1, 2))
    found = mine.run([{"x": good}, {"x": objects([b"12345678", text], (1, 2))}])
    assert isinstance(found[0], Features)
    assert str(found[1]) == "feature 'x', candidate 1: the value is not valid UTF-8"


def test_another_dtype_than_the_plan_says_goes_through_numpy(
    monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    plan = _one(
        Feature("x", "item", "int64"), IdentityId("x.id", "x"), Embed("x.rows", "x.id", "rows", "item", 0, 16)
    )
    mine, _ = _two(plan, monkeypatch)
    found = mine.run([{"x": np.array([[1, 2]], np.int16)}])
    assert isinstance(found[0], Features)
    assert found[0].items[0, 1, 0] == 32
    assert outcomes["done"] == 0


def test_masks_of_an_empty_sequence_and_of_padding_that_is_no_row(
    monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    step = Embed("x.rows", "x.id", "rows", "item", 0, 16, "mean", Mask("x.id", -1, "gt"))
    plan = _one(Feature("x", "item", "int64", -1), IdentityId("x.id", "x"), step)
    mine, theirs = _two(plan, monkeypatch)
    requests = [{"x": np.array([[[0, 1, -1], [-1, -1, -1]]])}, {"x": np.zeros((1, 2, 0), np.int64)}]
    for a, b in zip(mine.run(requests), theirs.run(requests), strict=True):
        np.testing.assert_array_equal(a.items, b.items)
    assert mine.run(requests)[0].items[0, :, 0].tolist() == [8.0, 0.0]
    assert outcomes["left"] == 0


def test_steps_that_numpy_keeps_feed_the_kernel(
    monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    features = (
        Feature("u", "user", "string"),
        Feature("x", "item", "string"),
        Feature("y", "item", "float32"),
    )
    steps = (
        Cross("ux", ("u", "x"), 9, 7),
        HashBucket("x.id", "x", 9),
        Embed("ux.rows", "ux", "rows", "item", 0, 16),
        Embed("x.rows", "x.id", "rows", "item", 16, 16),
        Numeric("y.number", "y", (), "item", 32),
    )
    plan = Plan("mixed", features, (TABLE,), steps, 0, 33, "float16", (8,), pad=True)
    mine, theirs = _two(plan, monkeypatch)
    assert [step.name for step in mine.kernel.program.left] == ["ux"]  # type: ignore[union-attr]
    requests = [
        {
            "u": objects([b"me"], (1, 1)),
            "x": objects([b"%d" % (i + k) for i in range(n)], (1, n)),
            "y": np.full((1, n), 0.5, np.float32),
        }
        for k, n in enumerate((3, 8, 1))
    ]
    for a, b in zip(mine.run(requests), theirs.run(requests), strict=True):
        np.testing.assert_array_equal(a.items, b.items)
        assert a.items.shape == (1, 8, 33)
    assert outcomes["done"] == 1


def test_results_stay_when_memory_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _one(
        Feature("x", "item", "int64"), IdentityId("x.id", "x"), Embed("x.rows", "x.id", "rows", "item", 0, 16)
    )
    mine, _ = _two(plan, monkeypatch)
    first = mine.run([{"x": np.array([[1]])}])[0]
    mine.run([{"x": np.array([[2]])}])
    assert first.items[0, 0, 0] == 16


def test_single_elements_of_a_sequence_are_numpys(
    monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str]
) -> None:
    """One element a row: where the kernel would look for all of the feature's."""
    plan = _one(
        Feature("x", "item", "int64", 3),
        Element("x.element", "x", 1, 3),
        Compute("x.row", "floormod", ("x.element", 9), "int64"),
        Embed("x.rows", "x.row", "rows", "item", 0, 16),
        Embed("x.plain", "x.element", "rows", "item", 16, 16),
        Counted("x.above", Mask("x.element", 4, "gt"), "item", 32),
        Counted("x.count", Mask("x", 4, "gt"), "item", 33),
        Admitted("x.mask", Mask("x", 4, "gt"), "item", 34, 3),
        width=37,
    )
    mine, theirs = _two(plan, monkeypatch)
    requests = [{"x": np.random.default_rng(k).integers(0, 9, (1 + k, 4, 3))} for k in range(3)]
    for request, a, b in zip(requests, mine.run(requests), theirs.run(requests), strict=True):
        assert isinstance(a, Features)
        assert isinstance(b, Features)
        _close(a, b, "elements")
        np.testing.assert_array_equal(a.items[:, :4, 16], request["x"][..., 1] * 16)
        np.testing.assert_array_equal(a.items[:, :4, 32], request["x"][..., 1] > 4)
        np.testing.assert_array_equal(a.items[:, :4, 33], (request["x"] > 4).sum(-1))
        np.testing.assert_array_equal(a.items[:, :4, 34:], request["x"] > 4)
    assert outcomes == {"done": 1}
