"""Which requests `verify` sends: the user's own, and made-up ones at every bucket edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

import numpy as np

from bireme.requests import Request, to_tensors
from bireme.synthetic import edge_counts, make_requests
from bireme_runtime.plan import Plan

__all__ = ["sample_requests", "sample_together"]


def sample_requests(
    plan: Plan, words: dict[str, list[bytes]], recorded: Sequence[Request], count: int, seed: int = 0
) -> list[Request]:
    """A mix, shuffled so that parallel clients form mixed batches.

    A quarter are recorded requests (if there are any), the rest made up: N at 1 and at b−1, b, b+1 of every
    bucket in turn, strings unknown and known, sequences empty and long.

    Args:
        plan: the served feature plan.
        words: vocabulary file → its keys.
        recorded: sample requests from logs.
        count: how many requests.
        seed: same seed, same requests.
    """
    logged = list(islice(cycle(recorded), count // 4)) if recorded else []
    edges = list(islice(cycle(edge_counts(plan.buckets, plan.listwise)), count - len(logged)))
    requests = [*logged, *make_requests(plan, words, edges, seed)]
    order = np.random.default_rng(seed).permutation(len(requests))
    return [requests[index] for index in order]


def sample_together(
    plan: Plan, words: Mapping[str, Sequence[bytes]], max_users: int, seed: int = 0
) -> list[list[Request]]:
    """Requests that may travel as the users of one.

    For every N at a bucket's edge a group of 2 to `max_users`. The sizes take turns, the largest among them,
    so that executions are full, half full and nearly empty.
    Nothing where a request holds one user only.

    Args:
        plan: the served feature plan.
        words: vocabulary file → its keys.
        max_users: users that one request may hold.
        seed: same seed, same requests.
    """
    if max_users < 2:
        return []
    sizes = cycle(sorted({2, min(3, max_users), max(2, max_users // 2 + 1), max_users}))
    groups = []
    for number, count in enumerate(edge_counts(plan.buckets, plan.listwise)):
        users = make_requests(plan, words, [count] * next(sizes), seed + number, equal_lengths=True)
        shapes = [_shapes(plan, user) for user in users]
        group = [user for user, shape in zip(users, shapes, strict=True) if shape == shapes[0]]
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _shapes(plan: Plan, request: Request) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in to_tensors(plan.features, request).items()}
