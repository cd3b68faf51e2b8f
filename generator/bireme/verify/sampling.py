"""Which requests `verify` sends: the user's own, and made-up ones at every bucket edge."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from bireme.requests import Request
from bireme.synthetic import edge_counts, make_requests
from bireme_runtime.plan import Plan

__all__ = ["sample_requests"]


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
