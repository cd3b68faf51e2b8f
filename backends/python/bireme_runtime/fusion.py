"""Steps of a kind as one pass: numpy's cost is in the number of its calls, not in the rows.

`fuse` turns a plan into stages with the same effect as running `KERNELS` step by step. All hashed strings of
a batch are hashed together, all words looked up together, all rows of one arena gathered together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .farmhash import farmhash64
from .kernels import KERNELS
from .plan import BlockStep, Embed, HashBucket, Plan, Subgraph, Vocabulary
from .requests import Array
from .state import State
from .tables import take_rows
from .vocabulary import merge

__all__ = ["fuse"]

Stage = Callable[[State], None]
#: Vocabularies with more keys stay apart in their mapped files, which all instances share.
_MERGED_KEYS = 100_000


def fuse(plan: Plan, arenas: Mapping[str, Array], vocabularies: Mapping[str, Any]) -> list[Stage]:
    """Stages that do what the plan's steps do, in fewer passes.

    Args:
        plan: the feature plan.
        arenas: arena file → [rows, width].
        vocabularies: file → vocabulary.
    """
    # Steps about derived strings stay apart: those strings are not yet made when the fused stages run.
    raw = {feature.name for feature in plan.features}
    hashed = [step for step in plan.steps if isinstance(step, HashBucket) and step.feature in raw]
    words = [
        step
        for step in plan.steps
        if isinstance(step, Vocabulary)
        and step.feature in raw
        and len(vocabularies[step.file]) <= _MERGED_KEYS
    ]
    gathers: dict[tuple[str, str], list[Embed]] = {}
    table_of = {table.name: table for table in plan.tables}
    for step in plan.steps:
        if isinstance(step, Embed) and step.pool is None and step.width == table_of[step.table].width:
            gathers.setdefault((step.side, table_of[step.table].arena), []).append(step)
    fused = {step.name for step in hashed} | {step.name for step in words}
    fused |= {step.name for group in gathers.values() for step in group}
    alone = [step for step in plan.steps if step.name not in fused]

    stages: list[Stage] = []
    if hashed:
        stages.append(_Hashes(hashed))
    if words:
        stages.append(_Words(words, vocabularies))
    subgraphs = [step for step in alone if isinstance(step, Subgraph)]
    ids = [step for step in alone if not isinstance(step, (BlockStep, Subgraph))]
    stages += [partial(KERNELS[step.op], step) for step in (*ids, *subgraphs)]
    stages += [_Gather(group, plan, arenas[arena]) for (_, arena), group in gathers.items()]
    stages += [partial(KERNELS[step.op], step) for step in alone if isinstance(step, BlockStep)]
    return stages


class _Hashes:
    """All `hash_bucket` steps: one hash over the strings of all their features."""

    def __init__(self, steps: Sequence[HashBucket]) -> None:
        self._steps = steps
        # A feature may be hashed into several numbers of buckets; its strings are hashed once.
        self._features = list(dict.fromkeys(step.feature for step in steps))

    def __call__(self, state: State) -> None:
        hashes = farmhash64(state.batch.texts(self._features))
        of_feature = _apart(hashes, state, self._features)
        for step in self._steps:
            ids = (of_feature[step.feature] % np.uint64(step.buckets)).view(np.int64)
            state.put_ids(step.name, step.feature, ids)


class _Words:
    """All `vocabulary` steps over small vocabularies: one lookup in all of them."""

    def __init__(self, steps: Sequence[Vocabulary], vocabularies: Mapping[str, Any]) -> None:
        self._steps = steps
        self._features = [step.feature for step in steps]
        files = list(dict.fromkeys(step.file for step in steps))
        self._vocabulary = merge([vocabularies[file] for file in files])
        self._parts = np.array([files.index(step.file) for step in steps])
        self._defaults = np.array([step.default for step in steps])

    def __call__(self, state: State) -> None:
        counts = [len(state.strings(feature)) for feature in self._features]
        defaults, parts = np.repeat(self._defaults, counts), np.repeat(self._parts, counts)
        ids = self._vocabulary.lookup(state.batch.texts(self._features), defaults, parts)
        ends = np.cumsum(counts).tolist()
        for step, count, end in zip(self._steps, counts, ends, strict=True):
            state.put_ids(step.name, step.feature, ids[end - count : end])


class _Gather:
    """All unpooled `embed` steps of one side from one arena: one gather."""

    def __init__(self, steps: Sequence[Embed], plan: Plan, arena: Array) -> None:
        self._steps = steps
        self._arena = arena
        tables = {table.name: table for table in plan.tables}
        self._first = np.array([tables[step.table].row_offset for step in steps])
        self._rows = np.array([tables[step.table].rows for step in steps], dtype=np.uint64)
        first, width = steps[0].offset, steps[0].width
        adjacent = all(step.offset == first + i * width for i, step in enumerate(steps))
        self._columns = slice(first, first + len(steps) * width) if adjacent else None

    def __call__(self, state: State) -> None:
        output = state.outputs[self._steps[0].side]
        ids = np.empty((len(output), len(self._steps)), dtype=np.int64)
        for column, step in enumerate(self._steps):
            ids[:, column] = state.ids[step.ids]
        if (ids.view(np.uint64) >= self._rows).any():  # negative ids are huge as unsigned
            for step in self._steps:
                KERNELS["embed"](step, state)  # says which one, and which request
        ids += self._first
        rows = take_rows(self._arena, ids).reshape(len(output), -1)
        if self._columns is not None:
            output[:, self._columns] = rows
            return
        for column, step in enumerate(self._steps):
            block = rows[:, column * step.width : (column + 1) * step.width]
            output[:, step.offset : step.offset + step.width] = block


def _apart(values: Array, state: State, features: Sequence[str]) -> dict[str, Array]:
    """Values of `batch.texts(features)`, feature by feature."""
    counts = [len(state.strings(feature)) for feature in features]
    return dict(zip(features, np.split(values, np.cumsum(counts)[:-1]), strict=True))
