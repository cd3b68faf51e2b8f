"""Vocabularies as the model's lookup tables hold them, and whether their ids fit the embedding tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bireme.compiler.graph import Capture, tf
from bireme.errors import CompileError
from bireme_runtime import plan as p
from bireme_runtime.text_steps import Compute, Cross, HashLegacy, HashStrong, features_behind

__all__ = ["StringsSource", "VocabularySource", "check_ids", "export_table"]


@dataclass(frozen=True)
class VocabularySource:
    """Where a vocabulary file's content comes from: a lookup table, and entries that take precedence.

    Args:
        kind: "vocabulary" (string keys) or "int_vocabulary".
        table: the lookup table.
        overrides: (key as bytes, id) pairs.
        types: dtypes of the table's keys and values.
    """

    kind: str
    table: Capture
    overrides: tuple[tuple[bytes, int], ...]
    types: tuple[Any, Any]

    @property
    def content(self) -> tuple[Any, ...]:
        """Equal for sources whose files have the same content."""
        return (id(self.table.handle), self.overrides)

    @cached_property
    def entries(self) -> tuple[list[bytes], np.ndarray[Any, Any]]:
        """Keys (integers as decimal text), ascending as bytes, and their int64 ids."""
        keys, values = export_table(self.table.handle, *self.types)
        # Where the values are strings, the ids are their places in the export.
        ids = range(len(values)) if self.types[1] == tf.string else values.tolist()
        pairs = {
            key if isinstance(key, bytes) else b"%d" % key: int(value)
            for key, value in zip(keys.tolist(), ids, strict=True)
        }
        pairs |= dict(self.overrides)
        ordered = sorted(pairs)
        return ordered, np.array([pairs[key] for key in ordered], dtype=np.int64)


@dataclass(frozen=True)
class StringsSource:
    """The strings that a `pick` step picks from; a file beside the vocabularies, but without keys."""

    strings: tuple[str, ...]
    kind: str = "strings"

    @property
    def content(self) -> tuple[Any, ...]:
        """Equal for sources whose files have the same content."""
        return self.strings

    @property
    def entries(self) -> tuple[list[bytes], np.ndarray[Any, Any]]:
        """No keys, no ids."""
        return [], np.empty(0, np.int64)


def export_table(handle: Any, keys: Any, values: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Keys and values of a lookup table, in the table's own order.

    Args:
        handle: the table's resource.
        keys: dtype of the keys.
        values: dtype of the values.
    """
    found = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=keys, Tvalues=values)
    known, ids = found[0].numpy(), found[1].numpy()
    if ids.shape != (len(known), 1):
        return known, ids
    known = known.reshape(-1)
    # A DenseHashTable exports its buckets as they are: empty ones all have one key, which is not to be used.
    _, first, counts = np.unique(known, return_index=True, return_counts=True)
    once = np.sort(first[counts == 1])
    return known[once], ids[once, 0]


def check_ids(
    steps: Sequence[p.Step],
    tables: Sequence[p.Table],
    sources: Mapping[str, VocabularySource | StringsSource],
) -> None:
    """Refuse a table that has no row for an id which its feature can get.

    Raises:
        CompileError: naming the feature and the table.
    """
    rows = {table.name: table.rows for table in tables}
    makers = {step.name: step for step in steps}
    for step in steps:
        if not isinstance(step, p.Embed):
            continue
        maker = makers.get(step.ids)
        if maker is None:
            continue  # computed by a subgraph: checked in every request
        largest = _largest_id(maker, makers, sources)
        if largest >= rows[step.table] and not _bounded(step.mask, step.ids, rows[step.table]):
            raise CompileError(
                f"feature '{features_behind(steps, maker.name)[0]}'",
                f"can get id {largest} from its {maker.op.replace('_', ' ')},"
                f" but embedding table '{step.table}' has rows 0 to {rows[step.table] - 1}",
                "correct the size of the table or of the vocabulary and export the model again",
            )


def _bounded(mask: p.Mask | None, ids: str, rows: int) -> bool:
    """Whether a mask admits only ids that a table has rows for."""
    while mask is not None:
        if (mask.of, mask.test) == (ids, "lt") and isinstance(mask.value, int) and mask.value <= rows:
            return True
        mask = mask.also
    return False


def _largest_id(
    maker: p.Step, makers: Mapping[str, p.Step], files: Mapping[str, VocabularySource | StringsSource]
) -> int:
    """An id that a step can surely give, the largest known; -1 where none is known.

    All other ids are checked in every request.
    """
    if isinstance(maker, (p.HashBucket, HashStrong, HashLegacy, Cross)):
        return maker.buckets - 1
    if isinstance(maker, p.Bucketize):
        return len(maker.edges)
    if isinstance(maker, (p.Vocabulary, p.IntVocabulary)):
        return max(int(files[maker.file].entries[1].max(initial=-1)), maker.default)
    if isinstance(maker, Compute):
        return _largest_computed(maker, makers, files)
    return -1


def _largest_computed(
    step: Compute, makers: Mapping[str, p.Step], files: Mapping[str, VocabularySource | StringsSource]
) -> int:
    largest = [
        operand if isinstance(operand, int) else _largest_id(makers[operand], makers, files)
        if operand in makers else -1
        for operand in step.of
    ]  # fmt: skip
    if step.function == "add" and min(largest) >= 0:
        return sum(largest)
    condition = makers.get(str(step.of[0]))
    if step.function == "where" and isinstance(condition, Compute):
        # `where(found == -1, hashed + first, found)`, or the other way round: places for unknown keys.
        asked, wanted = condition.of[0], condition.of[-1]
        found, other = (2, 1) if condition.function == "equal" else (1, 2)
        known = makers.get(str(asked))
        unknown_only = isinstance(known, (p.Vocabulary, p.IntVocabulary)) and known.default == wanted
        if condition.function in ("equal", "not_equal") and unknown_only and step.of[found] == asked:
            return max(largest[found], largest[other])
    return -1
