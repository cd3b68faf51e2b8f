"""Kernel of `subgraph` steps: pieces of the original model on ONNX Runtime or on TensorFlow.

Such a piece sees whole rows: [rows] or [rows, L]. Requests whose sequences have equal lengths run together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .engine_errors import plain_reason
from .pieces import Subgraph, SubgraphInput, SubgraphOutput
from .plan import Feature, Side
from .requests import Array, BadRequests, RequestError
from .state import State

__all__ = ["subgraph_step"]


def subgraph_step(step: Subgraph, state: State) -> None:
    """Run the piece on all rows of its side, and put its ids and columns where the plan wants them."""
    _refuse_outside(step, state)
    groups = _groups(step, state)
    results = [_run(step, rows, members, state) for members, rows in groups]
    for output in step.outputs:
        parts = [(rows, found[output.tensor]) for (_, rows), found in zip(groups, results, strict=True)]
        feature = Feature(name=output.about, side=step.side, dtype="float32")
        if output.width:
            _put_columns(output, step.side, feature, parts, state)
        else:
            _put_ids(output, feature, parts, state)


def _refuse_outside(step: Subgraph, state: State) -> None:
    """Values that index a table inside the piece, checked here: an engine's own words tell of no feature."""
    for source in step.inputs:
        if not source.rows:
            continue
        values = state.numbers(source.source)
        bad = np.flatnonzero((values < 0) | (values >= source.rows))
        if bad.size:
            raise state.batch.refuse(
                state.origin(source.source),
                state.lengths_of(source.source),
                bad,
                lambda i, values=values, rows=source.rows: (  # type: ignore[misc]
                    f"is {values[i]}; the table has rows 0 to {rows - 1}"
                ),
            )


def _groups(step: Subgraph, state: State) -> list[tuple[list[int], Array]]:
    """Requests that can run together, and their rows: those whose sequences have the same lengths."""
    sizes = state.batch.rows[step.side]
    ends = np.cumsum(sizes)
    sequences = [s for s in step.inputs if state.lengths_of(s.source) is not None]
    members: dict[tuple[int, ...], list[int]] = {}
    for index, end in enumerate(ends.tolist()):
        first = np.array([end - sizes[index]])
        key = tuple(
            int(state.lengths_of(s.source)[_rows_of(s, first, step.side, state)][0])  # type: ignore[index]
            for s in sequences
        )
        members.setdefault(key, []).append(index)
    return [
        (group, np.concatenate([np.arange(ends[i] - sizes[i], ends[i]) for i in group]))
        for group in members.values()
    ]


def _rows_of(source: SubgraphInput, rows: Array, side: Side, state: State) -> Array:
    """Rows of the piece → rows of a source: a user's for each of his candidates."""
    if state.origin(source.source).side == side:
        return rows
    return np.asarray(state.batch.user_of_item()[rows])


def _feed(source: SubgraphInput, rows: Array, side: Side, state: State) -> Array:
    rows = _rows_of(source, rows, side, state)
    lengths = state.lengths_of(source.source)
    if lengths is None:
        index, shape = rows, (len(rows),) if source.rank == 1 else (len(rows), 1)
    else:
        length = int(lengths[rows[0]])
        starts = np.cumsum(lengths) - lengths
        index = (starts[rows][:, None] + np.arange(length)).reshape(-1)
        shape = (len(rows), length)
    if source.source not in state.ids and state.origin(source.source).dtype == "string":
        return state.strings(source.source).take(index).to_objects().reshape(shape)
    return state.numbers(source.source)[index].reshape(shape)


def _run(step: Subgraph, rows: Array, members: list[int], state: State) -> Mapping[str, Array]:
    """All outputs for some rows.

    Raises:
        BadRequests: the piece fails on some requests; it says on which.
    """
    try:
        return _feed_and_run(step, rows, state)
    except Exception as error:
        if len(members) == 1:
            raise _refusal(step, rows, members[0], error, state) from None
    errors: dict[int, RequestError] = {}
    found = []
    ends = np.cumsum(state.batch.rows[step.side])
    for index in members:
        mine = np.arange(ends[index] - state.batch.rows[step.side][index], ends[index])
        try:
            found.append(_run(step, mine, [index], state))
        except BadRequests as bad:
            errors |= bad.errors
    if errors:
        raise BadRequests(errors)
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def _feed_and_run(step: Subgraph, rows: Array, state: State) -> Mapping[str, Array]:
    engine: Callable[[Mapping[str, Array]], Mapping[str, Array]] = state.engines[step.file]
    return engine({source.tensor: _feed(source, rows, step.side, state) for source in step.inputs})


def _refusal(step: Subgraph, rows: Array, member: int, error: Exception, state: State) -> BadRequests:
    """Why one request fails, and on which row: found by halves, since rows know nothing of each other.

    Args:
        step: the piece.
        rows: the request's.
        member: the request's index in the batch.
        error: what the engine said of all of them.
        state: the batch.
    """
    about = ", ".join(dict.fromkeys(name for output in step.outputs for name in output.about.split(", ")))
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        failed = _failure(step, half, state)
        rows = rows[len(half) :] if failed is None else half
        error = failed or error
    last = _failure(step, rows, state)
    if last is None:  # none fails alone
        return BadRequests({member: RequestError(f"feature '{about}' fails: {plain_reason(error)}")})
    feature = Feature(name=about, side=step.side, dtype="float32")
    return state.batch.refuse(feature, None, rows, lambda _: f"fails: {plain_reason(last)}")


def _failure(step: Subgraph, rows: Array, state: State) -> Exception | None:
    try:
        _feed_and_run(step, rows, state)
    except Exception as error:
        return error
    return None


def _put_columns(
    output: SubgraphOutput, side: Side, feature: Feature, parts: list[tuple[Array, Array]], state: State
) -> None:
    block = state.outputs[side][:, output.offset : output.offset + output.width]
    for rows, found in parts:
        values = found.reshape(len(rows), output.width)
        outside = ~(np.abs(values) <= state.limit) if values.dtype.kind == "f" else np.zeros(0, dtype=bool)
        if outside.any():  # also true for NaN
            bad = rows[outside.any(axis=1)]
            raise state.batch.refuse(feature, None, np.sort(bad), lambda _: "is not finite, or too large")
        block[rows] = values


def _put_ids(
    output: SubgraphOutput, feature: Feature, parts: list[tuple[Array, Array]], state: State
) -> None:
    total = sum(len(rows) for rows, _ in parts)
    state.feature_of[output.name] = feature
    if parts[0][1].ndim == 1:
        ids: Any = np.empty(total, dtype=np.int64)
        for rows, found in parts:
            ids[rows] = found
        state.lengths[output.name] = None
    else:
        lengths = np.empty(total, dtype=np.int64)
        flat = [found.reshape(len(rows), -1) for rows, found in parts]
        for (rows, _), found in zip(parts, flat, strict=True):
            lengths[rows] = found.shape[1]
        starts = np.cumsum(lengths) - lengths
        ids = np.empty(int(lengths.sum()), dtype=np.int64)
        for (rows, _), found in zip(parts, flat, strict=True):
            ids[starts[rows][:, None] + np.arange(found.shape[1])] = found
        state.lengths[output.name] = lengths
    state.ids[output.name] = ids
