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

__all__ = ["VocabularySource", "check_ids"]


@dataclass(frozen=True)
class VocabularySource:
    """Where a vocabulary file's content comes from: a lookup table, and entries that take precedence.

    Args:
        kind: "vocabulary" (string keys) or "int_vocabulary".
        table: the lookup table.
        overrides: (key as bytes, id) pairs.
    """

    kind: str
    table: Capture
    overrides: tuple[tuple[bytes, int], ...]

    @cached_property
    def entries(self) -> tuple[list[bytes], np.ndarray[Any, Any]]:
        """Keys (integers as decimal text), ascending as bytes, and their int64 ids."""
        key_type = tf.string if self.kind == "vocabulary" else tf.int64
        keys, values = tf.raw_ops.LookupTableExportV2(
            table_handle=self.table.handle, Tkeys=key_type, Tvalues=tf.int64
        )
        pairs = {
            key if isinstance(key, bytes) else b"%d" % key: int(value)
            for key, value in zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True)
        }
        pairs |= dict(self.overrides)
        ordered = sorted(pairs)
        return ordered, np.array([pairs[key] for key in ordered], dtype=np.int64)


def check_ids(
    steps: Sequence[p.Step], tables: Sequence[p.Table], sources: Mapping[str, VocabularySource]
) -> None:
    """Refuse a table that has no row for an id which its feature can get.

    Raises:
        CompileError: naming the feature and the table.
    """
    rows = {table.name: table.rows for table in tables}
    steps_by_name = {step.name: step for step in steps}
    for step in steps:
        if not isinstance(step, p.Embed):
            continue
        maker = steps_by_name[step.ids]
        largest = _largest_id(maker, sources)
        if largest >= rows[step.table]:
            feature = getattr(maker, "feature", "")
            raise CompileError(
                f"feature '{feature}'",
                f"can get id {largest} from its {maker.op.replace('_', ' ')},"
                f" but embedding table '{step.table}' has rows 0 to {rows[step.table] - 1}",
                "correct the size of the table or of the vocabulary and export the model again",
            )


def _largest_id(maker: p.Step, sources: Mapping[str, VocabularySource]) -> int:
    """Largest id that a step can give; -1 for row ids, which are checked in every request."""
    if isinstance(maker, p.HashBucket):
        return maker.buckets - 1
    if isinstance(maker, p.Bucketize):
        return len(maker.edges)
    if isinstance(maker, (p.Vocabulary, p.IntVocabulary)):
        return max(int(sources[maker.file].entries[1].max(initial=-1)), maker.default)
    return -1
