"""Which step of the feature plan makes which kind of `values.Ids` and `values.Text`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bireme.compiler.rules.values import Ids, Text
from bireme_runtime import plan as p
from bireme_runtime import text_steps as t

__all__ = ["LOOKUPS", "OPERAND", "make_step"]

#: Stands among a `compute` step's operands for the next of its sources.
OPERAND = None

#: Kinds that look their source up in a vocabulary file.
LOOKUPS: dict[str, type[p.Vocabulary] | type[p.IntVocabulary]] = {
    "vocabulary": p.Vocabulary,
    "int_vocabulary": p.IntVocabulary,
}

_Maker = Callable[[str, Sequence[str], tuple[Any, ...]], p.Step]


def _compute(name: str, sources: Sequence[str], parameters: tuple[Any, ...]) -> p.Step:
    function, dtype, operands = parameters
    left = iter(sources)
    of = tuple(next(left) if operand is OPERAND else operand for operand in operands)
    return t.Compute(name, function, of, dtype)


def _join(name: str, sources: Sequence[str], parameters: tuple[Any, ...]) -> p.Step:
    separator, constants = parameters
    left = iter(sources)
    parts = tuple(("source", next(left)) if text is OPERAND else ("constant", text) for text in constants)
    return t.Join(name, parts, separator)


def _choose(name: str, sources: Sequence[str], parameters: tuple[Any, ...]) -> p.Step:
    condition, *texts = sources
    left = iter(texts)
    parts = tuple(("source", next(left)) if text is OPERAND else ("constant", text) for text in parameters)
    return t.Choose(name, condition, parts)


_MAKERS: dict[str, _Maker] = {
    "hash_bucket": lambda name, of, how: p.HashBucket(name, of[0], how[0]),
    "hash_strong": lambda name, of, how: t.HashStrong(name, of[0], how[0], how[1]),
    "hash_legacy": lambda name, of, how: t.HashLegacy(name, of[0], how[0]),
    "cross": lambda name, of, how: t.Cross(name, tuple(of), how[0], how[1]),
    "compute": _compute,
    "measure": lambda name, of, how: t.Measure(name, of[0], how[0], how[1:]),
    "same": lambda name, of, _: t.Same(name, (of[0], of[1])),
    "bucketize": lambda name, of, how: p.Bucketize(name, of[0], how),
    "identity": lambda name, of, _: p.IdentityId(name, of[0]),
    "text": lambda name, of, how: t.Text(name, of[0], how[0], how[1:]),
    "split": lambda name, of, how: t.Split(name, of[0], how),
    "element": lambda name, of, how: t.Element(name, of[0], how[0], how[1]),
    "join": _join,
    "choose": _choose,
    "parse": lambda name, of, _: t.Parse(name, of[0]),
}


def make_step(
    name: str, value: Ids | Text, sources: Sequence[str], vocabulary: Callable[[Ids | Text], str]
) -> p.Step:
    """The step that makes `value`.

    Args:
        name: of the step.
        value: what it makes.
        sources: names of what it reads: the feature, or steps.
        vocabulary: gives the file of a lookup's keys and ids, or of a pick's strings.
    """
    if isinstance(value, Ids) and value.kind in LOOKUPS:
        return LOOKUPS[value.kind](name, sources[0], vocabulary(value), value.parameters[0])
    if value.kind == "pick":
        return t.Pick(name, sources[0], vocabulary(value))
    return _MAKERS[value.kind](name, sources, value.parameters)
