"""The user-ahead benchmark: its arithmetic, its users, and a whole small run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ahead_paths import User
from ahead_shares import SLICES, shares
from bireme.errors import VerifyError
from bireme_runtime.plan import Plan
from user_ahead import CANDIDATES, check_scores, main, make_users, take_turns

REPORT = {
    "one_shot": {"transforms": 1.0, "dense": 1.0},
    "user": {"transforms": 0.5, "dense": 0.5},
    "slice": {"transforms": 0.75, "dense": 0.75},
}


def test_shares_are_of_the_one_shot_path():
    in_process = {"one_shot": [20.0, 20.0, 40.0], "ahead": [16.0, 15.0, 32.0]}
    served = {"one_shot": [30.0, 30.0, 30.0], "ahead": [27.0, 24.0, 33.0], "cached": [30.0, 30.0, 36.0]}
    found = shares(REPORT, in_process, served)
    assert found["in_process"]["predicted"] == pytest.approx(1 - (1 + 10 * 1.5) / (10 * 2))
    assert found["in_process"]["measured"] == pytest.approx(
        {"median": 0.2, "lower_quartile": 0.2, "upper_quartile": 0.25}
    )
    # Served, a request costs 1 ms more, and there are eleven instead of ten.
    assert found["on_top_ms"] == pytest.approx(1.0)
    assert found["served"]["predicted"] == pytest.approx(1 - (2 + 10 * 2.5) / (10 * 3))
    assert found["served"]["measured"] == pytest.approx(
        {"median": 0.1, "lower_quartile": -0.1, "upper_quartile": 0.2}
    )
    assert found["served_cached"]["measured"]["lower_quartile"] == pytest.approx(-0.2)


def test_users_differ_and_their_slices_share_one(repository: Path):
    plan = Plan.read(repository / "tiny_preprocess" / "1" / "plan.json")
    words = {"vocabulary_0.bin": [b"red", b"green", b"blue"]}
    first, again = (make_users(plan, words, [], 3, tag) for tag in ("a", "b"))
    assert len({user.slices[0]["user"]["country"] for user in [*first, *again]}) == 6
    for user, other in zip(first, again, strict=True):
        assert len(user.slices) == SLICES
        assert all(request["user"] == user.slices[0]["user"] for request in user.slices)
        assert all(len(request["items"]["color"]) == CANDIDATES for request in user.slices)
        assert [r["items"] for r in user.slices] == [r["items"] for r in other.slices]


def test_every_way_has_its_turn_first_and_the_first_round_does_not_count():
    now, order = [0.0], []

    def way(name: str, seconds: float) -> Callable[[User], None]:
        def run(user: User) -> None:
            order.append((name, user))
            now[0] += seconds

        return run

    users = {name: [User([]) for _ in range(6)] for name in ("a", "b")}
    spent = take_turns({"a": way("a", 0.001), "b": way("b", 0.003)}, users, 2, lambda: now[0])
    assert [name for name, _ in order] == ["a", "a", "b", "b", "b", "b", "a", "a", "a", "a", "b", "b"]
    for name in users:
        assert [user for mine, user in order if mine == name] == users[name]
    assert spent["a"] == pytest.approx([1.0, 1.0])
    assert spent["b"] == pytest.approx([3.0, 3.0])


def test_other_scores_stop_the_run():
    class Wrong:
        def prepare(self, users: object) -> None: ...

        def one_shot(self, user: User) -> list[np.ndarray]:
            return [np.array([0.5, 0.25])]

        def ahead(self, user: User) -> list[np.ndarray]:
            return [np.array([0.5, 0.2501])]

    with pytest.raises(VerifyError, match=r"scores differ by 0\.0001"):
        check_scores(Wrong(), [User([])])


@pytest.mark.triton
def test_a_small_run(tiny: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("user_ahead.CANDIDATES", 16)  # the largest bucket
    out = tmp_path / "ahead.json"
    main(["--spec", str(tiny(1)), "--only", "--rounds", "2", "--users", "1", "--out", str(out)])
    (result,) = json.loads(out.read_text())["models"]
    assert result["max_difference"] <= 1e-6
    assert {name: len(rounds) for name, rounds in result["served_ms"].items()} == {
        "one_shot": 2,
        "ahead": 2,
        "cached": 2,
    }
    assert set(result["latency_ms"]) == {"one_shot", "user", "slice", "user_cached", "slice_cached"}
    assert out.with_suffix(".png").stat().st_size > 10_000
