"""The steps of a feature plan, as data: what each kind does is said here, and done in its kernel.

Id steps (`hash_bucket`, `vocabulary`, `int_vocabulary`, `bucketize`, `identity`) turn a source into integer
ids; block steps (`embed`, `numeric`, `admitted`, `counted`) write columns of one of the plan's two outputs. A
source is a feature, or a step that derives values from one (see text_steps.py). `subgraph` steps (see
pieces.py) run what has no step of its own, in another engine. To add a kind: its class here, in `STEPS`,
and a kernel in `KERNELS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .pieces import Subgraph, piece_ends
from .text_steps import (
    DERIVED_STEPS,
    Choose,
    Compute,
    Cross,
    Element,
    HashLegacy,
    HashStrong,
    Join,
    Measure,
    Parse,
    Pick,
    Same,
    Split,
    Text,
)

__all__ = [
    "STEPS",
    "Admitted",
    "BlockStep",
    "Bucketize",
    "Counted",
    "Embed",
    "HashBucket",
    "IdStep",
    "IdentityId",
    "IntVocabulary",
    "Mask",
    "Numeric",
    "Side",
    "Step",
    "Subgraph",
    "Vocabulary",
    "step_from",
]

Side = Literal["user", "item"]


@dataclass(frozen=True)
class HashBucket:
    """TensorFlow's `StringToHashBucketFast`: FarmHash64 of the bytes, modulo `buckets`."""

    name: str
    feature: str
    buckets: int
    op: Literal["hash_bucket"] = "hash_bucket"


@dataclass(frozen=True)
class Vocabulary:
    """String → id through an exact vocabulary stored in `file`; strings not in it get `default`."""

    name: str
    feature: str
    file: str
    default: int
    op: Literal["vocabulary"] = "vocabulary"


@dataclass(frozen=True)
class IntVocabulary:
    """Integer → id through a sorted key array stored in `file`; others get `default`."""

    name: str
    feature: str
    file: str
    default: int
    op: Literal["int_vocabulary"] = "int_vocabulary"


@dataclass(frozen=True)
class Bucketize:
    """Number → index of its interval: how many of `edges` (float32, ascending) are ≤ the value."""

    name: str
    feature: str
    edges: tuple[float, ...]
    op: Literal["bucketize"] = "bucketize"


@dataclass(frozen=True)
class IdentityId:
    """An integer feature that is itself the row of a table."""

    name: str
    feature: str
    op: Literal["identity"] = "identity"


@dataclass(frozen=True)
class Mask:
    """Which elements of a sequence count: those ≠ `value`, or ≥ ("ge"), > ("gt") or < ("lt") it.

    `of` is an id step, or a feature, whose sequences are as long as those that it is the mask of. `also` is
    another mask that the elements must pass.
    """

    of: str
    value: int | float | str
    test: Literal["ne", "ge", "gt", "lt"] = "ne"
    also: Mask | None = None


@dataclass(frozen=True)
class Embed:
    """Rows of `table` at the ids of step `ids`, pooled over the sequence if `pool` is set, into a block.

    Without a pool, the rows of a sequence lie one behind the other, in length × the table's width columns.
    `pool` "sum" adds the rows that `mask` admits (all, without one); "mean" divides that sum by
    max(number of admitted rows, `floor`), "sqrtn" by the root of their number; "max" takes the largest of
    each column. `weights` names a float feature whose elements multiply the rows before; "mean" then divides
    by the sum of the weights, "sqrtn" by the root of the sum of their squares. FP32 accumulation.

    A sequence without admitted rows gives the row at id `fill`, or zeros if that is None. `present` "all": it
    is refused, as the original gives NaN; "last": the original cannot run where a request's last row is one.
    """

    name: str
    ids: str
    table: str
    side: Side
    offset: int
    width: int
    pool: Literal["sum", "mean", "sqrtn", "max"] | None = None
    mask: Mask | None = None
    floor: float = 1.0
    weights: str | None = None
    fill: int | None = None
    present: Literal["", "last", "all"] = ""
    op: Literal["embed"] = "embed"


@dataclass(frozen=True)
class Numeric:
    """A numeric feature through `chain`, in FP32, into one column of a block, or `width` for a sequence.

    `chain` holds (operation, constant) pairs applied in order; the constant is None for unary operations.
    Operations: add, sub, rsub, mul, div, minimum, maximum, log1p, log, sqrt, square, abs, neg, tanh.
    """

    name: str
    feature: str
    chain: tuple[tuple[str, float | None], ...]
    side: Side
    offset: int
    width: int = 1
    op: Literal["numeric"] = "numeric"


@dataclass(frozen=True)
class Admitted:
    """Which elements of a sequence `mask` admits, as `width` columns of 1 and 0."""

    name: str
    mask: Mask
    side: Side
    offset: int
    width: int
    op: Literal["admitted"] = "admitted"


@dataclass(frozen=True)
class Counted:
    """How many elements of each sequence `mask` admits, or (`root`) the root of that; at least `floor`."""

    name: str
    mask: Mask
    side: Side
    offset: int
    floor: float = 0.0
    root: bool = False
    width: int = 1
    op: Literal["counted"] = "counted"


TextStep = Text | Split | Join | Choose | Pick | Element
IdStep = (
    HashBucket
    | HashStrong
    | HashLegacy
    | Cross
    | Compute
    | Measure
    | Same
    | Vocabulary
    | IntVocabulary
    | Bucketize
    | IdentityId
)
BlockStep = Embed | Numeric | Admitted | Counted
Step = TextStep | IdStep | Parse | BlockStep | Subgraph
STEPS: dict[str, type[Any]] = {
    "hash_bucket": HashBucket,
    "vocabulary": Vocabulary,
    "int_vocabulary": IntVocabulary,
    "bucketize": Bucketize,
    "identity": IdentityId,
    "embed": Embed,
    "numeric": Numeric,
    **DERIVED_STEPS,
    "admitted": Admitted,
    "counted": Counted,
    "subgraph": Subgraph,
}


def step_from(raw: dict[str, Any]) -> Step:
    """A step as JSON values, read back.

    Raises:
        ValueError: a step that this runtime does not know.
        TypeError: a known step with other fields.
    """
    if raw["op"] not in STEPS:
        raise ValueError(f"feature plan step '{raw['op']}' is unknown to this runtime")
    values = dict(raw)
    if values.get("mask") is not None:
        values["mask"] = _mask_from(values["mask"])
    if raw["op"] == "subgraph":
        values |= piece_ends(values)
    step: Step = STEPS[raw["op"]](**{name: _frozen(value) for name, value in values.items()})
    return step


def _mask_from(raw: dict[str, Any]) -> Mask:
    also = raw.get("also")
    return Mask(**{**raw, "also": _mask_from(also) if also is not None else None})


def _frozen(value: Any) -> Any:
    """JSON knows lists only; steps hold tuples."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
