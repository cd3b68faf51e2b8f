"""Many different requests with one and the same number of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.requests import Request, count_candidates
from bireme.synthetic import make_requests
from bireme_runtime.plan import Plan

__all__ = ["make_traffic"]

_UNSEEN = 0.1  # share of strings that are replaced
_LETTERS = list("0123456789abcdef")


def make_traffic(
    plan: Plan,
    words: Mapping[str, Sequence[bytes]],
    recorded: Sequence[Request],
    candidates: int,
    count: int,
    seed: int = 0,
) -> list[Request]:
    """Recorded users with recorded candidates; in every second request some strings were never seen before.

    A recorded user meets candidates of all recorded requests: no log holds the wanted number for everyone.
    Where nothing was recorded, everything is made up from the plan.

    Args:
        plan: the served feature plan.
        words: vocabulary file → its keys.
        recorded: sample requests from logs.
        candidates: N of every request.
        count: how many requests.
        seed: same seed, same requests.
    """
    if not recorded:
        return make_requests(plan, words, [candidates] * count, seed)
    rng = np.random.default_rng(seed)
    pool = [_candidate(request, row) for request in recorded for row in range(count_candidates(request))]
    requests: list[Request] = []
    for number in range(count):
        chosen = rng.choice(len(pool), candidates, replace=len(pool) < candidates)
        items = _columns(plan, [pool[index] for index in chosen])
        request: Request = {"user": recorded[number % len(recorded)]["user"], "items": items}
        requests.append(_with_unseen(request, rng) if number % 2 else request)
    return requests


def _candidate(request: Request, row: int) -> dict[str, Any]:
    """One candidate's features; a single value in the log holds for all of them."""
    return {
        name: value[row] if isinstance(value, (list, tuple)) else value
        for name, value in request["items"].items()
    }


def _with_unseen(request: Request, rng: np.random.Generator) -> Request:
    """The request with some strings replaced by others of their length: new users, items and brands."""

    def replace(value: Any) -> Any:
        if isinstance(value, list):
            return [replace(entry) for entry in value]
        if not isinstance(value, str) or rng.random() >= _UNSEEN:
            return value
        return "".join(rng.choice(_LETTERS, len(value)))

    return {
        side: {name: replace(value) for name, value in features.items()} for side, features in request.items()
    }


def _columns(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Feature → one value a candidate, with defaults where the log had none."""
    return {
        feature.name: [row.get(feature.name, feature.default) for row in rows]
        for feature in plan.features
        if feature.side == "item"
    }
