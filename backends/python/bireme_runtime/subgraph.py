"""Kernel of `subgraph` steps: pieces of the original model on ONNX Runtime or on TensorFlow.

Such a piece sees whole rows: [rows] or [rows, L]. Requests whose sequences have equal lengths run together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
    engine: Callable[[Mapping[str, Array]], Mapping[str, Array]] = state.engines[step.file]
    feeds = {source.tensor: _feed(source, rows, step.side, state) for source in step.inputs}
    try:
        return engine(feeds)
    except Exception as error:
        if len(members) == 1:
            reason = " ".join(str(error).split())
            about = ", ".join(dict.fromkeys(output.about for output in step.outputs))
            raise BadRequests({members[0]: RequestError(f"feature '{about}' fails: {reason}")}) from None
        errors: dict[int, RequestError] = {}
        ends = np.cumsum(state.batch.rows[step.side])
        for index in members:
            mine = np.arange(ends[index] - state.batch.rows[step.side][index], ends[index])
            try:
                _run(step, mine, [index], state)
            except BadRequests as bad:
                errors |= bad.errors
        if errors:
            raise BadRequests(errors) from None
        raise


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
