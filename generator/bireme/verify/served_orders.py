"""The ensemble asked in sequences: golden requests, one at a time, back and forth between their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bireme.client import RankingClient
from bireme.requests import count_candidates, to_tensors
from bireme.verify.golden import Golden
from bireme.verify.orders import Ordered, compare_orders
from bireme.verify.parity import stack_users
from bireme.verify.sequences import walk

__all__ = ["choose_letters", "compare_served_orders"]

Array = np.ndarray[Any, Any]
Letter = tuple[int, ...]

#: Groups of several users beside one request for each bucket.
_GROUPS = 8


def choose_letters(golden: Golden, buckets: Sequence[int]) -> list[Letter]:
    """Indices of requests to send as one: for each bucket the fullest single request, and some groups.

    Returns:
        Ascending by users × candidates.
    """
    counts = [count_candidates(request) for request in golden.requests]
    letters: list[Letter] = []
    for below, bucket in zip([0, *buckets[:-1]], buckets, strict=True):
        inside = [index for index, count in enumerate(counts) if below < count <= bucket]
        if inside:
            letters.append((max(inside, key=lambda index: counts[index]),))
    groups = sorted(golden.together, key=lambda group: len(group) * counts[group[0]], reverse=True)
    step = max(1, len(groups) // _GROUPS)
    letters += [tuple(group) for group in groups[::step]]
    return sorted(letters, key=lambda letter: len(letter) * counts[letter[0]])


def compare_served_orders(
    golden: Golden,
    buckets: Sequence[int],
    client: RankingClient,
    tolerances: Mapping[str, float],
    progress: Callable[[int, int], None],
) -> Ordered:
    """Walk over the golden requests' sizes.

    Args:
        golden: requests and the original's scores.
        buckets: the ensemble's.
        client: of the ensemble.
        tolerances: task → largest |served − original|.
        progress: called with (done, total).
    """
    letters = choose_letters(golden, buckets)
    counts = {letter: count_candidates(golden.requests[letter[0]]) for letter in letters}
    names = {letter: f"{len(letter)} x {counts[letter]}" for letter in letters}
    reference = {
        names[letter]: {
            task: np.stack([golden.scores[index][task] for index in letter]) for task in golden.scores[0]
        }
        for letter in letters
    }
    tensors = {
        names[letter]: stack_users([to_tensors(client.features, golden.requests[index]) for index in letter])
        for letter in letters
    }
    return compare_orders(
        golden.model,
        walk(list(dict.fromkeys(names[letter] for letter in letters))),
        lambda name: client.infer(tensors[name]),
        reference,
        lambda task, _: tolerances[task],
        progress,
    )
