"""Embedding tables and vocabularies, straight from the loaded model into the files that the runtime maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.graph import tf
from bireme.compiler.split import Split, VocabularySource
from bireme.errors import CompileError
from bireme_runtime import vocabulary as v
from bireme_runtime.plan import Plan, Table

__all__ = ["export_files", "read_words"]


def export_files(plan: Plan, cut: Split) -> dict[str, Callable[[Path], None]]:
    """File name → function that writes it. Tables are streamed, one at a time."""
    files: dict[str, Callable[[Path], None]] = {}
    for arena in dict.fromkeys(table.arena for table in plan.tables):
        tables = [table for table in plan.tables if table.arena == arena]
        files[arena] = partial(_write_arena, tables, cut.variables)
    for name, source in cut.vocabularies.items():
        files[name] = partial(_write_vocabulary, source)
    return files


def read_words(cut: Split) -> dict[str, list[bytes]]:
    """Vocabulary file → its keys."""
    return {name: _entries(source)[0] for name, source in cut.vocabularies.items()}


def _write_arena(tables: list[Table], variables: dict[str, Any], path: Path) -> None:
    with path.open("wb") as file:
        for table in tables:
            rows: np.ndarray[Any, Any] = variables[table.name].numpy()
            file.write(np.ascontiguousarray(rows).data)


def _entries(source: VocabularySource) -> tuple[list[bytes], np.ndarray[Any, Any]]:
    """Keys (as bytes) and ids, overrides applied, sorted by key: equal models give equal files."""
    key_type = tf.string if source.kind == "vocabulary" else tf.int64
    keys, values = tf.raw_ops.LookupTableExportV2(
        table_handle=source.table.handle, Tkeys=key_type, Tvalues=tf.int64
    )
    pairs = {
        key if isinstance(key, bytes) else b"%d" % key: int(value)
        for key, value in zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True)
    }
    pairs |= dict(source.overrides)
    ordered = sorted(pairs)
    return ordered, np.array([pairs[key] for key in ordered], dtype=np.int64)


def _write_vocabulary(source: VocabularySource, path: Path) -> None:
    keys, ids = _entries(source)
    try:
        if source.kind == "vocabulary":
            v.Vocabulary.build(keys, ids).save(path)
        else:
            v.IntVocabulary.build(np.array([int(key) for key in keys], dtype=np.int64), ids).save(path)
    except ValueError as error:
        raise CompileError("vocabulary", str(error), "correct the model's vocabulary") from None
