"""Sources side by side, element by element: a user's values are repeated for every candidate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .requests import Array
from .state import State

__all__ = ["align"]


def align(state: State, sources: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The rows of sources that a step reads together.

    Args:
        state: the running batch.
        sources: at least one source.

    Returns:
        The source whose side and sequence lengths the step's result has; and for each source the indices of
        its elements to take, or a slice that takes all.

    Raises:
        BadRequests: sequences of one row that have different lengths.
    """
    lead = next((name for name in sources if state.origin(name).side == "item"), sources[0])
    side = state.origin(lead).side
    wanted = state.lengths_of(lead)
    rows: dict[str, Any] = {}
    for name in sources:
        lengths = state.lengths_of(name)
        rows[name] = slice(None)
        if state.origin(name).side != side:
            owner = _users_of_pairs(state)
            rows[name], lengths = (owner, None) if lengths is None else _sequences(owner, lengths)
        if lengths is not None and wanted is not None:
            _refuse_unequal(state, lead, name, wanted, lengths)
    return lead, rows


def _users_of_pairs(state: State) -> Array:
    """For each pair of a user and a candidate, in order, the row of the user."""
    pairs = [np.full(request.users, request.candidates, np.int64) for request in state.batch.requests]
    counts = np.concatenate(pairs)
    return np.repeat(np.arange(counts.size), counts)


def _sequences(owner: Array, lengths: Array) -> tuple[Array, Array]:
    """The elements of each owner's sequence, and how many they are."""
    starts, repeated = np.cumsum(lengths) - lengths, lengths[owner]
    ends = np.cumsum(repeated)
    shift = starts[owner] - (ends - repeated)
    return np.arange(int(repeated.sum())) + np.repeat(shift, repeated), repeated


def _refuse_unequal(state: State, lead: str, other: str, wanted: Array, found: Array) -> None:
    bad = np.flatnonzero(wanted != found)
    if bad.size:
        feature = state.origin(lead)
        raise state.batch.refuse(
            feature,
            None,
            bad,
            lambda row: (
                f"has {wanted[row]} elements, that of '{state.origin(other).name}' has {found[row]};"
                " the model needs them side by side"
            ),
        )
