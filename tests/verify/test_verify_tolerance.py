"""Where `verify` takes its tolerance from: the hand, the build's limits, or FP32's own rounding."""

from __future__ import annotations

import numpy as np
import pytest

from bireme.losses import Loss
from bireme.verify.tolerance import choose_tolerances

EXPECTED = [
    {"click": np.array([0.2, -0.5]), "price": np.array([3.0, 400.0])},
    {"click": np.array([0.1]), "price": np.array([-800.0])},
]
LOSSES = [
    Loss(task="price", source="storage", allowed=0.01, measured=0.0021),
    Loss(task="price", source="precision", allowed=0.005, measured=0.0003),
]


def test_limits_are_shares_of_the_largest_score_and_add_up() -> None:
    found = choose_tolerances(None, LOSSES, EXPECTED)
    assert found["price"].value == pytest.approx(1e-5 + 0.01 * 800 + 0.005 * 800)
    for part in ("the tables' storage", "FP16", "0.0021", "0.0003", "largest score 800"):
        assert part in found["price"].reason


def test_a_task_that_nothing_rounds_must_be_exact() -> None:
    found = choose_tolerances(None, LOSSES, EXPECTED)["click"]
    assert (found.value, found.reason) == (1e-5, "the build rounds nothing")


@pytest.mark.parametrize("given", [0.0, 0.3])
def test_the_hand_wins(given: float) -> None:
    found = choose_tolerances(given, LOSSES, EXPECTED)
    assert {limit.value for limit in found.values()} == {given}
    assert {limit.reason for limit in found.values()} == {"given by hand"}
    assert found.keys() == {"click", "price"}
