"""Sparse and ragged tensors on the CPU side: the elements of all rows, end to end, that a mask keeps.

TensorFlow writes such a tensor as several: indices or row splits, values, a shape. Most of them mean nothing
to the dense network, so they are `Aside`: `Lowering.meaning` knows them, `Lowering.lower` does not. The
values are ordinary values (values.py) whose first dimension is `Kept`: hashes, lookups and gathers need no
other rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bireme.compiler.composites import Composite
from bireme.compiler.rules.values import (
    Count,
    Dim,
    Ids,
    Masked,
    Pool,
    Raw,
    Rows,
    Shape,
    Source,
    Value,
    as_ids,
    both,
    features_of,
    source_key,
    value_feature,
)
from bireme.errors import SpecError

__all__ = [
    "Absent",
    "Aside",
    "Distinct",
    "Flat",
    "Indices",
    "Inverse",
    "Kept",
    "Ones",
    "Padded",
    "Positions",
    "Segments",
    "Sizes",
    "Splits",
    "Weights",
    "aligned",
    "check_sides",
    "first_dim",
    "keep",
    "meanings",
    "narrow",
    "pooled",
    "sequence_axis",
]


@dataclass(frozen=True)
class Kept:
    """The dimension of the elements that `mask` keeps, those of all rows end to end.

    Args:
        key: equal for dimensions of the same elements.
        mask: which elements; None: all.
        padded: the shape of the padded tensor that they come from: ("R", "L") or ("R", 1).
        whole: they are a whole input of the signature, so that those of another one line up with them.
        fill: id that stands in a row without elements, once the graph has put one there.
    """

    key: tuple[Any, ...]
    mask: Masked | None = field(compare=False)
    padded: Shape
    whole: bool = field(default=False, compare=False)
    fill: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Distinct:
    """The dimension of the different values among kept elements, as `Unique` (a node) finds them."""

    node: str
    kept: Kept


@dataclass(frozen=True)
class Padded:
    """The second dimension of kept elements that the graph lays out as rows, filled up to the longest.

    Args:
        kept: which elements.
        default: value of the places behind a row's last element.
    """

    kept: Kept
    default: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Flat:
    """The dimension of all elements of a padded tensor, end to end; `dims` is that tensor's shape."""

    dims: Shape


class Aside:
    """What a rule may use, and nothing else."""


@dataclass(frozen=True)
class Sizes(Aside):
    """Dimensions of a tensor, as integers: a vector, or (`scalar`) one of them."""

    dims: tuple[Dim, ...]
    scalar: bool = False


@dataclass(frozen=True)
class _OfKept(Aside):
    """Something about kept elements."""

    kept: Kept


class Indices(_OfKept):
    """(row, place) of each kept element: [kept, 2]."""


class Segments(_OfKept):
    """The row of each kept element: [kept]."""


class Splits(_OfKept):
    """How many kept elements are before each row, and in all: [R + 1]."""


@dataclass(frozen=True)
class Positions(Aside):
    """Where the elements of `new` are among those of `old`: [new], or [new, 1]."""

    old: Kept
    new: Kept


@dataclass(frozen=True)
class Inverse(Aside):
    """Where each element's value is among the different ones: [kept]."""

    distinct: Distinct


class Absent(_OfKept):
    """Whether a row has no element: [R], [R, 1] or repeated over columns."""


@dataclass(frozen=True)
class Ones(Aside):
    """A 1 for each kept element, or (`total`) for each row their number."""

    kept: Kept
    total: bool = False


@dataclass(frozen=True)
class Weights(Aside):
    """A float feature's elements to a power, each by itself or (`total`) summed over rows.

    Args:
        feature: the float feature.
        kept: which elements.
        power: 1 or 2.
        total: summed over the elements of each row.
        root: the square root of that.
    """

    feature: str
    kept: Kept
    power: int = 1
    total: bool = False
    root: bool = False


def keep(mask: Masked, whole: bool = False) -> Kept:
    """The elements of a padded tensor that a mask keeps."""
    return Kept((mask.source.feature, mask.key), replace(mask, shape=()), mask.shape, whole)


def meanings(composite: Composite) -> dict[str, Any]:
    """Part of a sparse or ragged feature → what it means."""
    raw = Raw(composite.name, composite.dtype, ("R", "L"))
    kept = keep(Masked(as_ids(raw) or raw, composite.padding, ("R", "L")), whole=True)
    values = replace(raw, shape=(kept,))
    sparse = composite.kind == "sparse"
    found = (Indices(kept), values, Sizes(kept.padded)) if sparse else (values, Splits(kept))
    return dict(zip(composite.parts, found, strict=True))


def narrow(kept: Kept, test: Masked) -> Kept:
    """Those of the kept elements that pass another test."""
    source, mask = test.source, kept.mask
    if test.test == "ge" and isinstance(source, Ids) and source.non_negative and float(test.value) <= 0:
        return kept
    if mask is not None and _implied(mask, test):
        mask = mask.also
    found = both(replace(test, shape=()), mask)
    return replace(kept, key=(kept.key[0], found.key), mask=found, whole=False)


def _implied(weaker: Masked, test: Masked) -> bool:
    """Whether elements that pass `test` pass the other's first test anyway: x ≥ 1 differs from 0."""
    if source_key(weaker.source) != source_key(test.source) or weaker.test != "ne":
        return False
    if isinstance(weaker.value, str) or isinstance(test.value, str) or test.test not in ("ge", "gt"):
        return False
    return weaker.value < test.value or (test.test == "gt" and weaker.value == test.value)


def aligned(first: Kept, second: Kept) -> bool:
    """Whether element i of one goes with element i of the other."""
    return first == second or (first.whole and second.whole)


def first_dim(value: Any) -> Any:
    """The first dimension of a value; None if it is none."""
    return value.shape[0] if isinstance(value, (Raw, Ids, Rows, Masked)) and value.shape else None


def pooled(rows: Rows, kept: Kept, pool: Pool, present: Literal["", "last", "all"]) -> Rows:
    """Rows of kept elements, pooled over each row.

    Args:
        rows: rows [kept, D].
        kept: which elements.
        pool: see `Rows`.
        present: see `Rows`; no matter where the graph filled empty rows.
    """
    return replace(
        rows,
        pool=pool,
        mask=kept.mask,
        fill=kept.fill,
        present="" if kept.fill is not None else present,
        shape=("R", *rows.shape[1:]),
    )


def check_sides(value: Value, sides: Mapping[str, str]) -> None:
    """Refuse columns of one side whose mask or weights are on the other.

    Raises:
        SpecError: naming both features.
    """
    parts: list[Source] = []
    if isinstance(value, Rows):
        parts.append(value.ids)
        parts += [Raw(value.weights, "float32", ())] if value.weights is not None else []
    mask = value if isinstance(value, Masked) else value.mask if isinstance(value, (Rows, Count)) else None
    parts += [test.source for test in mask.tests] if mask is not None else []

    # What is made of both sides is item side.
    leads = [next((f for f in features_of(p) if sides[f] == "item"), value_feature(p)) for p in parts]
    for lead in leads[1:]:
        if sides[lead] != sides[leads[0]]:
            raise SpecError(
                "user",
                f"puts '{leads[0]}' and '{lead}' on different sides, but the model pairs their elements",
                "list both under `user`, or neither",
            )


def sequence_axis(shape: Shape) -> int | None:
    """Which dimension holds the elements of a padded sequence."""
    return next((i for i, dim in enumerate(shape) if i and (dim == "L" or isinstance(dim, Padded))), None)
