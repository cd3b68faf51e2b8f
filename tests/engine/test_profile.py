"""Optimization profiles: pure functions, tested for real."""

from __future__ import annotations

import pytest

from bireme.engine.profile import all_shapes, profile, shape_of
from bireme_runtime.passport import Needs, Shapes

NEEDS = Needs({"user": [8], "items": [-1, 4]}, 6, (64, 128, 256))


def test_a_profile_runs_from_one_user_to_all_and_is_tuned_for_the_middle_of_the_graphs():
    captured = [(users, bucket) for users in (1, 2, 4, 6) for bucket in NEEDS.buckets]
    assert profile(NEEDS, captured) == {
        "user": Shapes((1, 8), (4, 8), (6, 8)),
        "items": Shapes((1, 64, 4), (4, 64, 4), (6, 256, 4)),
    }
    assert profile(NEEDS, list(reversed(captured))) == profile(NEEDS, captured)


def test_without_graphs_the_largest_shape_is_tuned_for():
    assert profile(NEEDS, [])["items"] == Shapes((1, 64, 4), (6, 256, 4), (6, 256, 4))


def test_a_network_without_candidates():
    needs = Needs({"user": [8]}, 16, ())
    captured = [(users, None) for users in (1, 2, 4, 8, 16)]
    assert profile(needs, captured) == {"user": Shapes((1, 8), (4, 8), (16, 8))}
    assert all_shapes(needs) == [(users, None) for users in range(1, 17)]


def test_every_shape_is_within_the_profile():
    shapes = all_shapes(NEEDS)
    assert len(shapes) == 6 * 3
    assert shapes[0] == (1, 64)
    assert shapes[-1] == (6, 256)
    ranges = profile(NEEDS, [])
    for shape in shapes:
        for name, sizes in shape_of(NEEDS.dims, shape).items():
            assert all(a <= b <= c for a, b, c in zip(ranges[name].min, sizes, ranges[name].max, strict=True))


def test_candidates_without_a_bucket_are_a_mistake():
    with pytest.raises(ValueError, match="needs a bucket"):
        shape_of(NEEDS.dims, (1, None))
