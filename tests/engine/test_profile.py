"""Optimization profiles: pure functions, tested for real."""

from __future__ import annotations

import pytest

from bireme.engine.profile import all_shapes, profile, shape_of
from bireme_runtime.passport import Needs, Shapes

NEEDS = Needs({"user": [8], "items": [-1, 4]}, 6, (64, 128, 256))


def test_a_profile_runs_from_one_user_to_all_and_is_tuned_for_one_with_the_middle_bucket():
    assert profile(NEEDS) == {
        "user": Shapes((1, 8), (1, 8), (6, 8)),
        "items": Shapes((1, 64, 4), (1, 128, 4), (6, 256, 4)),
    }


def test_of_two_buckets_the_larger_is_tuned_for_and_one_is_all():
    assert profile(Needs(NEEDS.dims, 6, (64, 512)))["items"].opt == (1, 512, 4)
    assert profile(Needs(NEEDS.dims, 6, (64,)))["items"] == Shapes((1, 64, 4), (1, 64, 4), (6, 64, 4))


@pytest.mark.parametrize(("users", "tuned"), [(1, 1), (2, 1), (5, 3), (16, 8)])
def test_a_network_without_candidates(users, tuned):
    needs = Needs({"user": [8]}, users, ())
    assert profile(needs) == {"user": Shapes((1, 8), (tuned, 8), (users, 8))}
    assert all_shapes(needs) == [(count, None) for count in range(1, users + 1)]


def test_every_shape_is_within_the_profile():
    shapes = all_shapes(NEEDS)
    assert len(shapes) == 6 * 3
    assert shapes[0] == (1, 64)
    assert shapes[-1] == (6, 256)
    ranges = profile(NEEDS)
    for shape in shapes:
        for name, sizes in shape_of(NEEDS.dims, shape).items():
            assert all(a <= b <= c for a, b, c in zip(ranges[name].min, sizes, ranges[name].max, strict=True))


def test_candidates_without_a_bucket_are_a_mistake():
    with pytest.raises(ValueError, match="needs a bucket"):
        shape_of(NEEDS.dims, (1, None))
