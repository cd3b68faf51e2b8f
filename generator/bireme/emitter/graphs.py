"""Which CUDA Graphs the GPU network needs: a pure function of the contract.

The batcher can form any number of users from 1 to `max_users`, and every user carries candidates padded to
one bucket. A graph for each of those shapes would be `max_users` × buckets captures, each of them held three
times per instance by Triton, so the users dimension is covered in steps of a power of two: the graph for 8
users also runs 5, 6 and 7, over rows of padding that no operation mixes with real ones. The candidates
dimension has no such slack: a graph reached inexactly there would hand back padded rows.

Over a budget (graph_budget.py) there are fewer sizes, and wider steps.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import NamedTuple

from bireme.spec import Contract

__all__ = ["Graph", "graph_plan", "graphs", "user_graphs", "user_sizes"]


class Graph(NamedTuple):
    """One captured shape: it runs `fewest`..`users` users, each with exactly `bucket` candidates."""

    fewest: int
    users: int
    bucket: int


def graphs(contract: Contract) -> list[Graph]:
    """Every graph to capture, ascending; for each bucket the user ranges touch and cover 1..max_users.

    The largest shape is always among them: a plain execution larger than every captured graph corrupts
    later launches in Triton's TensorRT backend (measured; answers off by 20 %).
    """
    ranges = user_graphs(contract)
    return [Graph(fewest, users, bucket) for (fewest, users), bucket in product(ranges, contract.buckets)]


def user_graphs(contract: Contract) -> list[tuple[int, int]]:
    """(fewest, users) of each graph of a network without candidates, ascending; they cover 1..max_users."""
    sizes = contract.graph_users or user_sizes(contract.max_users)
    return [(1, sizes[0]), *((below + 1, size) for below, size in pairwise(sizes))]


def graph_plan(contract: Contract) -> list[tuple[int, int]]:
    """The captured (users, bucket) shapes, ascending."""
    return [(graph.users, graph.bucket) for graph in graphs(contract)]


def user_sizes(max_users: int) -> list[int]:
    """The sizes without a budget: powers of two below `max_users`, then `max_users` itself."""
    powers = [1 << exponent for exponent in range(max_users.bit_length())]
    return [size for size in powers if size < max_users] + [max_users]
