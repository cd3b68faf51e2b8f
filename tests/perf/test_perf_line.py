"""Fitted slopes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micro.line import fit
from micro.preprocess_slope import lines, measure

NUMBER = st.floats(-100, 100)


@given(st.lists(st.integers(0, 500), min_size=2, unique=True), NUMBER, NUMBER)
def test_points_on_a_line_give_that_line(counts, fixed, slope):
    found = fit(counts, [fixed + slope * count for count in counts])
    assert found.fixed == pytest.approx(fixed, abs=1e-6)
    assert found.slope == pytest.approx(slope, abs=1e-6)


def test_noise_on_both_sides_cancels_out():
    assert fit([1, 1, 3, 3], [1.0, 3.0, 5.0, 7.0]).slope == pytest.approx(2.0)


@pytest.mark.parametrize(("counts", "costs"), [([1], [1.0]), ([2, 2], [1.0, 2.0]), ([1, 2], [1.0])])
def test_no_line_through_less_than_two_points(counts, costs):
    with pytest.raises(ValueError, match="two different"):
        fit(counts, costs)


def test_slopes_are_in_nanoseconds_and_costs_in_microseconds():
    fixed, slope = lines([0, 100], [[5.0, 15.0], [7.0, 27.0]])
    assert (fixed.lowest, fixed.highest) == (5.0, 7.0)
    assert (slope.lowest, slope.highest) == (100.0, 200.0)


def test_only_the_call_is_measured_and_every_request_has_its_turn():
    called: list[tuple[str, int]] = []

    def ready(name, number):
        return lambda: lambda: called.append((name, number))

    methods = {name: [[ready(name, number) for number in range(2)]] * 3 for name in ("a", "b")}
    costs = measure(methods, repeats=2, calls=4)
    assert {name: [len(row) for row in rows] for name, rows in costs.items()} == {"a": [3, 3], "b": [3, 3]}
    assert called[:4] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert len(called) == 2 * 3 * 4 * 2
