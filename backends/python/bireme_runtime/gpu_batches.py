"""Which executions a batch of requests becomes: a pure function of their sizes.

Requests of one bucket run together, up to the most users that one execution takes. A request stays whole
unless it alone has more users than that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .gpu_shapes import Shape

__all__ = ["Execution", "Piece", "Sizes", "executions"]


class Piece(NamedTuple):
    """Users of one request that run in one execution.

    Args:
        request: its index in the batch.
        first: its first user that does.
        users: how many.
        row: where they begin in the execution.
    """

    request: int
    first: int
    users: int
    row: int


class Execution(NamedTuple):
    """One run of the network.

    Args:
        bucket: candidates of each user; 0 without candidates.
        users: users that are real; the rows behind them are padding.
        pieces: whose they are.
    """

    bucket: int
    users: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Sizes:
    """Numbers of users that were captured, for each bucket.

    Args:
        captured: bucket → ascending numbers of users; a bucket without graphs is missing.
        most: most users of an execution that runs plainly.
    """

    captured: Mapping[int, Sequence[int]]
    most: int

    @classmethod
    def of(cls, graphs: Sequence[Shape], most: int) -> Sizes:
        """From the captured shapes."""
        captured: dict[int, list[int]] = {}
        for shape in sorted(set(graphs)):
            captured.setdefault(shape.bucket, []).append(shape.users)
        return cls(captured, most)

    def limit(self, bucket: int) -> int:
        """Most users of one execution: those of the largest graph, so that none is served without."""
        sizes = self.captured.get(bucket)
        return sizes[-1] if sizes else self.most

    def shape(self, execution: Execution) -> tuple[Shape, bool]:
        """The shape that an execution runs in, and whether there is a graph for it."""
        sizes = self.captured.get(execution.bucket)
        if not sizes:
            return Shape(execution.users, execution.bucket), False
        return Shape(sizes[bisect_left(sizes, execution.users)], execution.bucket), True


def executions(groups: Mapping[int, Sequence[int]], users: Sequence[int], sizes: Sizes) -> list[Execution]:
    """Split a batch.

    Args:
        groups: bucket → indices of its requests.
        users: users of every request.
        sizes: what was captured.

    Returns:
        The executions, bucket by bucket, requests in the order of the groups.
    """
    result = []
    for bucket, group in groups.items():
        limit, pieces, filled = sizes.limit(bucket), list[Piece](), 0
        for index in group:
            for first in range(0, users[index], limit):
                count = min(limit, users[index] - first)
                if filled and filled + count > limit:
                    result.append(Execution(bucket, filled, tuple(pieces)))
                    pieces, filled = [], 0
                pieces.append(Piece(index, first, count, filled))
                filled += count
        if filled:
            result.append(Execution(bucket, filled, tuple(pieces)))
    return result
