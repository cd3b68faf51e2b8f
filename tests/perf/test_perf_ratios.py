"""Ratios of paired rounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratios import paired, percentile, spread

POSITIVE = st.floats(0.01, 1e6)


def test_a_slow_round_cancels_out():
    ours = [10.0, 20.0, 30.0]
    slowdown = [1.0, 0.1, 0.5]
    theirs = [value / 2 for value in ours]
    ratios = paired(
        [a * s for a, s in zip(ours, slowdown, strict=True)],
        [b * s for b, s in zip(theirs, slowdown, strict=True)],
    )
    assert ratios == pytest.approx([2.0, 2.0, 2.0])


@pytest.mark.parametrize(("above", "below"), [([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([-1.0], [1.0])])
def test_what_cannot_be_paired_is_refused(above, below):
    with pytest.raises(ValueError, match=r"paired|positive"):
        paired(above, below)


@given(st.lists(POSITIVE, min_size=1))
def test_a_spread_holds_all_values_and_its_median_splits_them(values):
    found = spread(values)
    assert (found.lowest, found.highest) == (min(values), max(values))
    assert sum(value <= found.median for value in values) * 2 >= len(values)
    assert sum(value >= found.median for value in values) * 2 >= len(values)


def test_no_spread_without_values():
    with pytest.raises(ValueError, match="at least one"):
        spread([])


@given(st.lists(POSITIVE, min_size=1), st.floats(0.001, 1.0))
def test_a_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(values, share):
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.1)])
def test_no_percentile_of_nothing(values, share):
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, share)
