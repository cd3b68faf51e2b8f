"""Many different requests with one and the same number of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.requests import Request, count_candidates
from bireme.synthetic import make_requests
from bireme_runtime.plan import Plan

__all__ = ["make_traffic"]


def make_traffic(
    plan: Plan,
    words: Mapping[str, Sequence[bytes]],
    recorded: Sequence[Request],
    candidates: int,
    count: int,
    seed: int = 0,
) -> list[Request]:
    """Half recorded users with recorded candidates, half made up; all made up if nothing was recorded.

    A recorded user meets candidates of all recorded requests: no log holds the wanted number for everyone.

    Args:
        plan: the served feature plan.
        words: vocabulary file → its keys.
        recorded: sample requests from logs.
        candidates: N of every request.
        count: how many requests.
        seed: same seed, same requests.
    """
    rng = np.random.default_rng(seed)
    logged = count // 2 if recorded else 0
    pool = [_candidate(request, row) for request in recorded for row in range(count_candidates(request))]
    requests: list[Request] = []
    for number in range(logged):
        chosen = rng.choice(len(pool), candidates, replace=len(pool) < candidates)
        requests.append(
            {
                "user": recorded[number % len(recorded)]["user"],
                "items": _columns(plan, [pool[index] for index in chosen]),
            }
        )
    requests += make_requests(plan, words, [candidates] * (count - logged), seed)
    return [requests[index] for index in rng.permutation(count)]


def _candidate(request: Request, row: int) -> dict[str, Any]:
    """One candidate's features; a single value in the log holds for all of them."""
    return {
        name: value[row] if isinstance(value, (list, tuple)) else value
        for name, value in request["items"].items()
    }


def _columns(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Feature → one value a candidate, with defaults where the log had none."""
    return {
        feature.name: [row.get(feature.name, feature.default) for row in rows]
        for feature in plan.features
        if feature.side == "item"
    }
