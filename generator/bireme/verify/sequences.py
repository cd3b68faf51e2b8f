"""In which order shapes are sent: what has made served CUDA Graphs answer wrongly is an order, not a shape.

A graph keeps the addresses that it was captured with. If another shape moves a buffer, leaves its data in
one, or makes an engine allocate anew, then a later launch reads or returns something that is not its own, and
it does so without an error. Hence: back and forth between two shapes, growing, shrinking, small ones after
the largest, and any number of users.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import TypeVar

from bireme.verify.gpu_network import Shape

__all__ = ["orders", "user_sizes", "walk"]

Letter = TypeVar("Letter")

#: Back and forth this often.
_TURNS = 2
#: More numbers of users than this are thinned out, where each is combined with every bucket.
_MOST_SIZES = 8


def orders(buckets: Sequence[int], max_users: int, seed: int = 0) -> dict[str, list[Shape]]:
    """What the sequence is called → its shapes, for a network that is called directly.

    Args:
        buckets: ascending; (0,) for a network without candidates.
        max_users: users that one request may hold.
        seed: of the mixed users' order.
    """
    sizes = user_sizes(max_users)
    grid = [Shape(users, bucket) for users in sizes for bucket in buckets]
    every = [Shape(users, buckets[users % len(buckets)]) for users in range(1, max_users + 1)]
    random.Random(seed).shuffle(every)
    edges = sorted({1, max_users})
    rows = [[Shape(users, bucket) for bucket in buckets] for users in edges]
    columns = [[Shape(users, bucket) for users in sizes] for bucket in sorted({buckets[0], buckets[-1]})]
    back_and_forth = [shape for line in (*rows, *columns) for shape in walk(line)["back and forth"]]
    walked = walk(sorted(grid, key=_volume))
    return {
        "back and forth": back_and_forth,
        **{name: walked[name] for name in ("growing", "shrinking", "small after largest")},
        "mixed users": every,
    }


def walk(letters: Sequence[Letter]) -> dict[str, list[Letter]]:
    """The same for anything that has been put in order of size.

    Args:
        letters: ascending.
    """
    if len(letters) <= _MOST_SIZES:
        pairs = list(combinations(letters, 2))
    else:  # neighbours, and each with the largest
        pairs = [*pairwise(letters), *((letter, letters[-1]) for letter in letters[:-2])]
    return {
        "back and forth": [letter for pair in pairs for letter in pair * _TURNS],
        "growing": list(letters),
        "shrinking": list(reversed(letters)),
        "small after largest": [letter for small in letters[:-1] for letter in (letters[-1], small)],
    }


def user_sizes(max_users: int) -> list[int]:
    """Numbers of users on, below and above the powers of two at which graphs are captured; ascending."""
    powers = [1 << exponent for exponent in range(max_users.bit_length())]
    near = {1, max_users, *(power + d for power in powers for d in (-1, 0, 1))}
    sizes = sorted(size for size in near if 1 <= size <= max_users)
    if len(sizes) > _MOST_SIZES:
        step = (len(sizes) - 1) / (_MOST_SIZES - 1)
        sizes = sorted({sizes[round(number * step)] for number in range(_MOST_SIZES)})
    return sizes


def _volume(shape: Shape) -> tuple[int, int]:
    return shape.users * max(1, shape.bucket), shape.users
