"""Embedding tables and vocabularies, straight from the loaded model into the files that the runtime maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from bireme.compiler.cut.split import Split
from bireme.compiler.tables.tables_export import write_arena
from bireme.compiler.tables.vocabularies import StringsSource, VocabularySource
from bireme.errors import CompileError
from bireme_runtime import vocabulary as v
from bireme_runtime.plan import Plan
from bireme_runtime.string_file import save_strings
from bireme_runtime.text_steps import to_bytes

__all__ = ["export_files", "read_words"]


def export_files(plan: Plan, cut: Split) -> dict[str, Callable[[Path], None]]:
    """File name → function that writes it."""
    files: dict[str, Callable[[Path], None]] = {}
    for arena in dict.fromkeys(table.arena for table in plan.tables):
        tables = [table for table in plan.tables if table.arena == arena]
        files[arena] = partial(write_arena, tables, cut.variables)
    for name, source in cut.vocabularies.items():
        files[name] = partial(_write_vocabulary, source)
    files |= cut.subgraphs
    return files


def read_words(cut: Split) -> dict[str, list[bytes]]:
    """Vocabulary file → its keys."""
    return {name: source.entries[0] for name, source in cut.vocabularies.items()}


def _write_vocabulary(source: VocabularySource | StringsSource, path: Path) -> None:
    if isinstance(source, StringsSource):
        save_strings(path, [to_bytes(text) for text in source.strings])
        return
    keys, ids = source.entries
    try:
        if source.kind == "vocabulary":
            v.Vocabulary.build(keys, ids).save(path)
        else:
            v.IntVocabulary.build(np.array([int(key) for key in keys], dtype=np.int64), ids).save(path)
    except ValueError as error:
        raise CompileError("vocabulary", str(error), "correct the model's vocabulary") from None
