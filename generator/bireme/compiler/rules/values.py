"""What a tensor on the CPU side means: the values that `lower` computes and `split` turns into plan steps.

Shapes are symbolic: "R" is the row (a user–candidate pair), "L" the length of a sequence, integers are fixed;
an object (sparse.py) is the one dimension that the elements of all rows share, laid end to end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from bireme.compiler.graph import Capture
from bireme_runtime.plan import Mask

__all__ = [
    "Count",
    "Dim",
    "Ids",
    "Masked",
    "Numbers",
    "Pool",
    "Raw",
    "Rows",
    "Shape",
    "Source",
    "Text",
    "Value",
    "admit",
    "as_ids",
    "as_text",
    "both",
    "derive",
    "features_of",
    "fixed_parts",
    "numbers",
    "one_each",
    "plan_mask",
    "raw_feature",
    "same_mask",
    "same_source",
    "source_key",
    "span",
    "value_feature",
]

Dim = Any  # "R", "L", an int, or a dimension of sparse.py
Shape = tuple[Dim, ...]
Pool = Literal["sum", "mean", "sqrtn", "max"]


@dataclass(frozen=True)
class Raw:
    """A feature as it arrives."""

    feature: str
    dtype: str
    shape: Shape

    @property
    def sequence(self) -> bool:
        """Whether a row holds several elements."""
        return "L" in self.shape or self.shape[:1] != ("R",)


@dataclass(frozen=True)
class Text:
    """Strings made from features: of one, by a text op, or of several, by a join.

    Args:
        feature: the first feature that they are made of.
        kind: "text", "split", "join", "pick" or another of id_steps.py.
        parameters: what that step needs besides its sources, hashable.
        sources: what they are made from; () for the feature itself.
    """

    feature: str
    kind: str
    parameters: tuple[Any, ...]
    shape: Shape
    sources: tuple[Source, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for steps that make the same strings."""
        return (self.feature, self.kind, self.parameters, tuple(source_key(s) for s in self.sources))


@dataclass(frozen=True)
class Ids:
    """Integers made from features.

    Args:
        feature: the (first) feature that they are made of.
        kind: "hash_bucket", "vocabulary", "int_vocabulary", "bucketize", "identity", or another of
            id_steps.py; or "computed" by a subgraph: then `feature` tells of the features and the node, and
            `parameters` hold the tensor.
        parameters: what that step needs besides its sources, hashable.
        table: the lookup table behind a vocabulary.
        overrides: (raw value, id) pairs that take precedence over the vocabulary.
        sources: what they are made from; () for the feature itself.
    """

    feature: str
    kind: str
    parameters: tuple[Any, ...]
    shape: Shape
    non_negative: bool
    table: Capture | None = None
    overrides: tuple[tuple[bytes, int], ...] = ()
    sources: tuple[Source, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for steps that compute the same ids."""
        table = id(self.table.handle) if self.table is not None else None
        sources = tuple(source_key(source) for source in self.sources)
        return (self.feature, self.kind, self.parameters, table, self.overrides, sources)


@dataclass(frozen=True)
class Masked:
    """Which elements of a sequence count; boolean, or cast to 0/1.

    Args:
        source: what is compared.
        value: with what.
        test: "ne" (differs from `value`), "ge", "gt" or "lt".
        also: another test of the same elements, which they must pass too.
    """

    source: Source
    value: int | float | str
    shape: Shape
    test: Literal["ne", "ge", "gt", "lt"] = "ne"
    also: Masked | None = None

    @property
    def tests(self) -> tuple[Masked, ...]:
        """All tests that an element must pass, one by one."""
        return (replace(self, also=None), *(self.also.tests if self.also is not None else ()))

    @property
    def key(self) -> frozenset[tuple[Any, ...]]:
        """Equal for masks that admit the same elements."""
        return frozenset((source_key(one.source), one.test, one.value) for one in self.tests)


@dataclass(frozen=True)
class Count:
    """How many elements of a sequence the mask admits, or (`root`) the root of that; at least `floor`."""

    mask: Masked
    shape: Shape
    floor: float = 0.0
    root: bool = False


@dataclass(frozen=True)
class Rows:
    """Rows of an embedding table, possibly masked and pooled.

    Args:
        ids: where.
        variable: placeholder node of the table's variable.
        width: columns of the table.
        pool: None: still one row an id; "sum", "mean", "sqrtn" or "max".
        weights: a float feature whose elements multiply the rows.
        fill: id that a row without elements gets; None: it pools to 0.
        present: which rows must have elements for the original to give scores: "" (any may be empty), "last"
            or "all".
    """

    ids: Ids
    variable: str
    width: int
    shape: Shape
    mask: Masked | None = None
    pool: Pool | None = None
    floor: float = 1.0
    weights: str | None = None
    fill: int | None = None
    present: Literal["", "last", "all"] = ""

    @property
    def whole(self) -> bool:
        """Whether these are pooled, or rows of the table as they are."""
        return self.pool is not None or (self.mask is None and self.weights is None)


@dataclass(frozen=True)
class Numbers:
    """A number after a chain of scalar operations.

    Args:
        source: what the chain starts from, if that is not the feature: integers, or strings to be read.
    """

    feature: str
    chain: tuple[tuple[str, float | None], ...]
    shape: Shape
    source: Source | None = None


Source = Raw | Text | Ids
Value = Raw | Text | Ids | Masked | Count | Rows | Numbers


def numbers(value: Value | None) -> Numbers | None:
    """A float feature, raw or transformed, as `Numbers`."""
    if isinstance(value, Raw) and value.dtype == "float32":
        return Numbers(value.feature, (), value.shape)
    return value if isinstance(value, Numbers) else None


def as_ids(value: Value | None) -> Ids | None:
    """Ids, or an integer feature that is used as one."""
    if isinstance(value, Raw) and value.dtype in ("int32", "int64"):
        return Ids(value.feature, "identity", (), value.shape, non_negative=False)
    return value if isinstance(value, Ids) else None


def as_text(value: Value | None) -> Raw | Text | None:
    """Strings: a feature, or made of some."""
    is_text = isinstance(value, Text) or (isinstance(value, Raw) and value.dtype == "string")
    return value if is_text and isinstance(value, (Raw, Text)) else None


def raw_feature(value: Value | None) -> str | None:
    """The feature, if the value is that feature itself (an integer may have changed its width)."""
    untouched = isinstance(value, Raw) or (
        isinstance(value, Ids) and value.kind == "identity" and not value.sources
    )
    return value.feature if untouched and isinstance(value, (Raw, Ids)) else None


def derive(
    value: Source, kind: str, *parameters: Any, non_negative: bool, table: Capture | None = None
) -> Ids:
    """Ids made from one source."""
    sources = () if raw_feature(value) is not None else (value,)
    return Ids(value.feature, kind, parameters, value.shape, non_negative, table, sources=sources)


def source_key(source: Source) -> tuple[Any, ...]:
    """Equal for sources with the same elements."""
    feature = raw_feature(source)
    return ("raw", feature) if isinstance(source, Raw) or feature is not None else source.key


def same_source(first: Value | None, second: Value | None) -> bool:
    """Whether two values are the same strings or integers, whatever dimensions of size 1 they have."""
    sources = (Raw, Text, Ids)
    return (
        isinstance(first, sources) and isinstance(second, sources) and source_key(first) == source_key(second)
    )


def features_of(value: Value) -> tuple[str, ...]:
    """The features that a value is made of."""
    if isinstance(value, Rows):
        return features_of(value.ids)
    if isinstance(value, Count):
        return features_of(value.mask)
    if isinstance(value, Masked):
        more = features_of(value.also) if value.also is not None else ()
        return tuple(dict.fromkeys((*features_of(value.source), *more)))
    if isinstance(value, Numbers):
        return features_of(value.source) if value.source is not None else (value.feature,)
    if isinstance(value, Raw) or not value.sources:
        return (value.feature,)
    return tuple(dict.fromkeys(name for source in value.sources for name in features_of(source)))


def span(source: Source) -> tuple[Any, ...]:
    """Equal for sources whose sequences have the same lengths."""
    if isinstance(source, Text) and source.kind == "split":
        return source.key
    if isinstance(source, Raw) or not source.sources:
        return ("raw", source.feature)
    return span(source.sources[0])  # a step that reads several refuses rows whose lengths differ


def fixed_parts(source: Source) -> int | None:
    """How many elements every row has, if strings were split into a fixed number of parts; else None."""
    if isinstance(source, Text) and source.kind == "split":
        return int(source.parameters[2])
    return fixed_parts(source.sources[0]) if not isinstance(source, Raw) and source.sources else None


def value_feature(value: Value) -> str:
    """The (first) feature that a value is made of."""
    return features_of(value)[0]


def both(first: Masked, second: Masked | None) -> Masked:
    """The elements that two masks admit."""
    if second is None or second.key <= first.key:
        return first
    return replace(first, also=both(first.also, second) if first.also is not None else second)


def one_each(rows: Rows) -> Shape:
    """The shape of one number for each of some rows, which multiplies or divides it whole."""
    # Without a dimension for the columns, the table has a single one.
    return (*rows.shape[:-1], 1) if isinstance(rows.shape[-1], int) else rows.shape


def admit(rows: Value | None, mask: Masked) -> Value | None:
    """Rows of which only those in `mask` count; None if the mask does not line up with them."""
    if not isinstance(rows, Rows) or rows.pool is not None or mask.shape != one_each(rows):
        return None
    return replace(rows, mask=both(mask, rows.mask)) if span(mask.source) == span(rows.ids) else None


def same_mask(first: Masked | None, second: Masked) -> bool:
    """Whether two masks admit the same elements."""
    return first is not None and first.key == second.key


def plan_mask(mask: Masked, step_of: dict[tuple[Any, ...], str]) -> Mask:
    """A mask as the plan writes it: over a step, or over the raw feature."""
    source = mask.source
    also = plan_mask(mask.also, step_of) if mask.also is not None else None
    of = source.feature if isinstance(source, Raw) else step_of[source.key]
    return Mask(of, mask.value, mask.test, also)
