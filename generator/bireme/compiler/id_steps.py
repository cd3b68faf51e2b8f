"""Which step of the feature plan makes which kind of ids; the kinds are named in `values.Ids`."""

from __future__ import annotations

from collections.abc import Callable

from bireme.compiler.values import Ids
from bireme_runtime import plan as p

__all__ = ["LOOKUPS", "make_id_step"]

#: Kinds that look their source up in a vocabulary file.
LOOKUPS: dict[str, type[p.Vocabulary] | type[p.IntVocabulary]] = {
    "vocabulary": p.Vocabulary,
    "int_vocabulary": p.IntVocabulary,
}

_PLAIN: dict[str, Callable[[str, Ids], p.Step]] = {
    "hash_bucket": lambda name, ids: p.HashBucket(name, ids.feature, ids.parameters[0]),
    "bucketize": lambda name, ids: p.Bucketize(name, ids.feature, ids.parameters),
    "identity": lambda name, ids: p.IdentityId(name, ids.feature),
}


def make_id_step(name: str, ids: Ids, vocabulary: Callable[[Ids], str]) -> p.Step:
    """The step that makes `ids`.

    Args:
        name: of the step.
        ids: what it makes.
        vocabulary: gives the file of a lookup's vocabulary.
    """
    if ids.kind in LOOKUPS:
        return LOOKUPS[ids.kind](name, ids.feature, vocabulary(ids), ids.parameters[0])
    return _PLAIN[ids.kind](name, ids)
