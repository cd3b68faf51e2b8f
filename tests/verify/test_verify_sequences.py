"""Orders of shapes: every kind of change occurs, and no more requests than needed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bireme.verify.direct import number
from bireme.verify.gpu_network import Shape
from bireme.verify.sequences import orders, user_sizes, walk

BUCKETS = (64, 128, 256, 512, 1024)


@pytest.mark.parametrize("max_users", [1, 2, 7, 16])
@pytest.mark.parametrize("buckets", [BUCKETS, (20,), (0,)])
def test_every_shape_stays_in_what_is_served(buckets: tuple[int, ...], max_users: int) -> None:
    for name, shapes in orders(buckets, max_users).items():
        assert all(1 <= shape.users <= max_users and shape.bucket in buckets for shape in shapes), name


def test_two_buckets_take_turns_whichever_they_are() -> None:
    shapes = orders(BUCKETS, 8)["back and forth"]
    turns = set(zip(shapes, shapes[1:], shapes[2:], shapes[3:], strict=False))
    for users in (1, 8):
        for small in BUCKETS:
            for large in BUCKETS:
                if small < large:
                    a, b = Shape(users, small), Shape(users, large)
                    assert (a, b, a, b) in turns


def test_growing_and_shrinking_visit_everything_in_order() -> None:
    made = orders(BUCKETS, 8)
    volumes = [shape.users * shape.bucket for shape in made["growing"]]
    assert volumes == sorted(volumes)
    assert made["shrinking"] == made["growing"][::-1]
    assert set(made["growing"]) == {Shape(users, b) for users in user_sizes(8) for b in BUCKETS}


def test_every_small_shape_comes_right_after_the_largest() -> None:
    shapes = orders(BUCKETS, 8)["small after largest"]
    largest = Shape(8, 1024)
    after = {small for large, small in pairwise(shapes) if large == largest}
    assert after == set(orders(BUCKETS, 8)["growing"]) - {largest}


def test_any_number_of_users_is_sent() -> None:
    assert sorted(shape.users for shape in orders(BUCKETS, 16)["mixed users"]) == list(range(1, 17))
    assert {shape.bucket for shape in orders(BUCKETS, 16)["mixed users"]} == set(BUCKETS)


def test_a_check_stays_within_some_hundred_requests() -> None:
    assert sum(map(len, orders(BUCKETS, 16).values())) < 600
    assert sum(map(len, orders(range(64, 64 * 9, 64), 64).values())) < 1500


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, [1]), (3, [1, 2, 3]), (8, [1, 2, 3, 4, 5, 7, 8]), (16, [1, 2, 4, 5, 7, 8, 15, 16])],
)
def test_sizes_lie_around_the_powers_of_two(most: int, sizes: list[int]) -> None:
    assert user_sizes(most) == sizes


def test_the_same_shape_twice_in_a_row_has_other_inputs() -> None:
    numbered = number({"a": [Shape(1, 8), Shape(1, 8), Shape(2, 8)], "b": [Shape(1, 8), Shape(2, 8)]})
    assert [(sent.shape.users, sent.variant) for sent in numbered["a"]] == [(1, 0), (1, 1), (2, 0)]
    assert [(sent.shape.users, sent.variant) for sent in numbered["b"]] == [(1, 0), (2, 1)]


def test_each_request_comes_again_so_that_a_change_shows() -> None:
    sent = [key for keys in number(orders(BUCKETS, 8)).values() for key in keys]
    assert len(set(sent)) < len(sent) / 2


def test_anything_can_be_walked() -> None:
    assert walk("ab")["back and forth"] == ["a", "b", "a", "b"]
    assert walk("abc")["small after largest"] == ["c", "a", "c", "b"]
    many = walk([*range(20)])["back and forth"]
    assert set(many) == {*range(20)}
    assert len(many) < 200
