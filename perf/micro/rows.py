"""The feature plan the way it is usually written first: a loop over rows, one Python object at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bireme_runtime.farmhash import hash_bucket
from bireme_runtime.plan import Embed, HashBucket, IdentityId, Numeric, Plan, Vocabulary
from bireme_runtime.strings import FlatStrings
from bireme_runtime.tables import open_tables
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

__all__ = ["RowLoop"]

Array = np.ndarray[Any, Any]
_OPERATIONS: dict[str, Callable[..., float]] = {
    "add": lambda x, c: x + c,
    "sub": lambda x, c: x - c,
    "rsub": lambda x, c: c - x,
    "mul": lambda x, c: x * c,
    "div": lambda x, c: x / c,
    "minimum": min,
    "maximum": max,
    "log1p": math.log1p,
    "log": math.log,
    "sqrt": math.sqrt,
    "square": lambda x: x * x,
    "abs": abs,
    "neg": lambda x: -x,
    "tanh": math.tanh,
}


class RowLoop:
    """Runs a plan row by row; the results are those of `Preprocessor`.

    Vocabularies are dictionaries and tables are lists, the fastest that Python objects offer. Hashes are
    remembered, so a string is hashed at most once in the life of this object: that flatters the row loop.

    Args:
        folder: where `plan.json` and its files lie.

    Raises:
        ValueError: the plan has a step that is not written down here.
    """

    def __init__(self, folder: Path) -> None:
        self.plan = Plan.read(folder / "plan.json")
        self._tables = {name: table.tolist() for name, table in open_tables(folder, self.plan.tables).items()}
        self._ids: dict[str, tuple[str, Callable[[Any], int]]] = {}
        self._blocks: dict[str, list[Embed | Numeric]] = {"user": [], "item": []}
        for step in self.plan.steps:
            if isinstance(step, Vocabulary):
                self._ids[step.name] = step.feature, _lookup(step, folder)
            elif isinstance(step, HashBucket):
                self._ids[step.name] = step.feature, _Buckets(step.buckets).__getitem__
            elif isinstance(step, IdentityId):
                self._ids[step.name] = step.feature, int
            elif isinstance(step, Embed) and step.mask is not None and step.mask.of != step.ids:
                raise ValueError(f"the row loop has no mask over '{step.mask.of}' for '{step.name}'")
            elif isinstance(step, (Embed, Numeric)):
                self._blocks[step.side].append(step)
            else:
                raise ValueError(f"the row loop has no '{step.op}'")
        for blocks in self._blocks.values():
            blocks.sort(key=lambda step: step.offset)

    def run(self, tensors: Mapping[str, Array]) -> tuple[Array, Array]:
        """One request of one user.

        Args:
            tensors: feature → user [1, 1] or [1, L], item [1, N]; features left out have their default.

        Returns:
            FP32 user [1, user_width], items [1, N, item_width].
        """
        values = {name: array[0].tolist() for name, array in tensors.items()}
        count = next(len(values[f.name]) for f in self.plan.features if f.side == "item" and f.name in values)
        for feature in self.plan.features:
            if feature.name not in values:
                default = feature.default if feature.length is not None else [feature.default]
                values[feature.name] = default * (count if feature.side == "item" else 1)
        single = {
            f.name: values[f.name] if f.length is not None else values[f.name][0]
            for f in self.plan.features
            if f.side == "user"
        }
        user = self._row("user", single)
        names = [feature.name for feature in self.plan.features if feature.side == "item"]
        items = [
            self._row("item", dict(zip(names, row, strict=True)))
            for row in zip(*(values[name] for name in names), strict=True)
        ]
        return np.array([user], np.float32), np.array([items], np.float32)

    def _row(self, side: str, values: Mapping[str, Any]) -> list[float]:
        row: list[float] = []
        for step in self._blocks[side]:
            if isinstance(step, Numeric):
                row.append(_number(step, values[step.feature]))
                continue
            feature, id_of = self._ids[step.ids]
            table = self._tables[step.table]
            if step.pool is None:
                row += table[id_of(values[feature])]
            else:
                row += _pool(step, table, [id_of(value) for value in values[feature]])
        return row


class _Buckets(dict[bytes, int]):
    """String → its hash bucket, remembered."""

    def __init__(self, buckets: int) -> None:
        super().__init__()
        self._buckets = buckets

    def __missing__(self, value: bytes) -> int:
        self[value] = int(hash_bucket(FlatStrings.from_list([value]), self._buckets)[0])
        return self[value]


def _lookup(step: Vocabulary, folder: Path) -> Callable[[Any], int]:
    vocabulary = VocabularyFile.load(folder / step.file)
    keys = vocabulary.keys()
    ids = dict(zip(keys, vocabulary.lookup(FlatStrings.from_list(keys), step.default).tolist(), strict=True))
    get, default = ids.get, step.default
    return lambda value: get(value, default)


def _number(step: Numeric, value: float) -> float:
    for name, constant in step.chain:
        value = _OPERATIONS[name](value) if constant is None else _OPERATIONS[name](value, constant)
    return value


def _pool(step: Embed, table: list[list[float]], ids: list[int]) -> list[float]:
    if step.mask is not None:
        ids = [id_ for id_ in ids if id_ != step.mask.value]
    total = [0.0] * step.width
    for id_ in ids:
        total = [a + b for a, b in zip(total, table[id_], strict=True)]
    if step.pool == "mean":
        total = [value / max(len(ids), step.floor) for value in total]
    return total
