"""Steps about derived strings and integers, as data; each says which TensorFlow ops it stands for.

Text steps (`text`, `split`, `join`, `choose`, `pick`) turn sources into strings; the others turn sources into
numbers. Bytes are kept in JSON as text: `to_text` and `to_bytes` convert, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .pieces import Subgraph

__all__ = [
    "DERIVED_STEPS",
    "Choose",
    "Compute",
    "Cross",
    "Element",
    "HashLegacy",
    "HashStrong",
    "Join",
    "Measure",
    "Parse",
    "Pick",
    "Same",
    "Split",
    "Text",
    "features_behind",
    "sources_of",
    "to_bytes",
    "to_text",
]


def to_text(value: bytes) -> str:
    """Bytes as text that JSON can hold."""
    return value.decode("utf-8", "surrogateescape")


def to_bytes(value: str) -> bytes:
    """The bytes that `to_text` was given."""
    return value.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Text:
    """Strings made from a source's values, one by one, by a `function` of text_functions.py."""

    name: str
    feature: str
    function: str
    parameters: tuple[Any, ...] = ()
    op: Literal["text"] = "text"


@dataclass(frozen=True)
class Split:
    """`StringSplitV2` into a sequence of `parameters[2]` parts: longer ones are cut, shorter ones filled.

    `parameters`: separator ("": white space), largest number of splits (-1: any), parts, filling.
    """

    name: str
    feature: str
    parameters: tuple[Any, ...]
    op: Literal["split"] = "split"


@dataclass(frozen=True)
class Join:
    """`StringJoin`: for every row, `parts` with `separator` between them.

    Each part is ("source", name) or ("constant", text). User side sources are repeated for every candidate
    if a source is item side.
    """

    name: str
    parts: tuple[tuple[str, str], ...]
    separator: str
    op: Literal["join"] = "join"


@dataclass(frozen=True)
class Choose:
    """`where` over strings: of two `parts`, as in `Join`, the first where integers `condition` are not 0."""

    name: str
    condition: str
    parts: tuple[tuple[str, str], ...]
    op: Literal["choose"] = "choose"


@dataclass(frozen=True)
class Pick:
    """The strings of `file` at the ids of step `feature`: a lookup table whose values are strings."""

    name: str
    feature: str
    file: str
    op: Literal["pick"] = "pick"


@dataclass(frozen=True)
class Element:
    """`x[:, index]` of integers or strings: one element of each sequence, all of which have `length`."""

    name: str
    feature: str
    index: int
    length: int
    op: Literal["element"] = "element"


@dataclass(frozen=True)
class HashStrong:
    """`StringToHashBucketStrong`: SipHash-2-4 under `key` (two 64-bit words), modulo `buckets`."""

    name: str
    feature: str
    buckets: int
    key: tuple[int, int]
    op: Literal["hash_strong"] = "hash_strong"


@dataclass(frozen=True)
class HashLegacy:
    """`StringToHashBucket`: TensorFlow's Hash64, modulo `buckets`."""

    name: str
    feature: str
    buckets: int
    op: Literal["hash_legacy"] = "hash_legacy"


@dataclass(frozen=True)
class Cross:
    """`SparseCross` of single values: their fingerprints mixed under `key`, modulo `buckets`.

    The fingerprint of a string is its FarmHash64, that of an integer the integer.
    """

    name: str
    of: tuple[str, ...]
    buckets: int
    key: int
    op: Literal["cross"] = "cross"


@dataclass(frozen=True)
class Compute:
    """An integer function of kernels_ids.py, in `dtype` ("int32" or "int64", which wrap as in TensorFlow).

    `of` holds names of sources and integer constants; truth is 1 and 0. User side sources are repeated for
    every candidate if a source is item side.
    """

    name: str
    function: str
    of: tuple[str | int, ...]
    dtype: str
    op: Literal["compute"] = "compute"


@dataclass(frozen=True)
class Measure:
    """An integer made from each string of a source by a `measure` of text_functions.py."""

    name: str
    feature: str
    function: str
    parameters: tuple[Any, ...] = ()
    op: Literal["measure"] = "measure"


@dataclass(frozen=True)
class Same:
    """1 where two string sources are equal, else 0."""

    name: str
    of: tuple[str, str]
    op: Literal["same"] = "same"


@dataclass(frozen=True)
class Parse:
    """`StringToNumber` into FP32; a request with a string that is no number is refused."""

    name: str
    feature: str
    op: Literal["parse"] = "parse"


DERIVED_STEPS: dict[str, type[Any]] = {
    "text": Text,
    "split": Split,
    "join": Join,
    "choose": Choose,
    "pick": Pick,
    "element": Element,
    "hash_strong": HashStrong,
    "hash_legacy": HashLegacy,
    "cross": Cross,
    "compute": Compute,
    "measure": Measure,
    "same": Same,
    "parse": Parse,
}


def sources_of(step: Any) -> tuple[str, ...]:
    """Names of the features and steps that a step reads."""
    if isinstance(step, Join):
        return tuple(text for kind, text in step.parts if kind == "source")
    if isinstance(step, Choose):
        return (step.condition, *(text for kind, text in step.parts if kind == "source"))
    if isinstance(step, (Cross, Compute, Same)):
        return tuple(name for name in step.of if isinstance(name, str))
    if isinstance(step, Subgraph):
        return tuple(source.source for source in step.inputs)
    if hasattr(step, "ids"):  # an `embed` step
        return (step.ids,)
    if hasattr(step, "mask"):  # an `admitted` step
        return _masks_of(step.mask)
    return (step.feature,)


def _masks_of(mask: Any) -> tuple[str, ...]:
    """What a mask and those that elements must pass, too, are about."""
    return () if mask is None else tuple(dict.fromkeys((mask.of, *_masks_of(mask.also))))


def features_behind(steps: Iterable[Any], source: str) -> tuple[str, ...]:
    """The features that a source is, or is made of, in the order in which they are read."""
    steps = list(steps)
    # Steps that write columns make no source; one may be called like a feature.
    makers = {step.name: step for step in steps if not hasattr(step, "offset")}
    for step in steps:
        if isinstance(step, Subgraph):
            makers |= {output.name: step for output in step.outputs if output.name}
    found: list[str] = []
    left = [source]
    while left:
        name = left.pop()
        if name in makers:
            left += reversed(sources_of(makers[name]))
        elif name not in found:
            found.append(name)
    return tuple(found)
