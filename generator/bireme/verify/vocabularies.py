"""The keys of an emitted repository's vocabularies, from which requests are made up."""

from __future__ import annotations

from pathlib import Path

from bireme_runtime.plan import IntVocabulary, Plan, Vocabulary
from bireme_runtime.vocabulary import IntVocabulary as IntVocabularyFile
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

__all__ = ["read_vocabularies"]


def read_vocabularies(plan: Plan, folder: Path) -> dict[str, list[bytes]]:
    """Vocabulary file → its keys, from the emitted files."""
    words = {}
    for step in plan.steps:
        if isinstance(step, Vocabulary):
            words[step.file] = VocabularyFile.load(folder / step.file).keys()
        elif isinstance(step, IntVocabulary):
            words[step.file] = [b"%d" % key for key in IntVocabularyFile.load(folder / step.file).keys]
    return words
