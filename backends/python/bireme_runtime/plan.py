"""The feature plan: what `preprocess` does with a request, as data.

The compiler writes it (`plan.json`), `preprocess` executes it. A plan has four parts:

* `features`: the raw inputs of a request,
* `tables`: where each embedding table lies inside an arena file,
* `steps`: id steps (`hash_bucket`, `vocabulary`, `int_vocabulary`, `bucketize`, `identity`) turn a feature
  into integer ids; block steps (`embed`, `numeric`) write columns of one of the two outputs,
* the widths of the two outputs, `user` [users, user_width] and `items` [users, candidates, item_width].
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Side = Literal["user", "item"]
FORMAT = 1


@dataclass(frozen=True)
class Feature:
    """One raw input of a request.

    Args:
        name: input name, as in the SavedModel's signature.
        side: "user": one value (or sequence) per user; "item": one per candidate.
        dtype: numpy name of the wire type: "string", "int32", "int64", "float32", "float64", "bool".
        length: None for a single value, -1 for a sequence of any length, else its fixed length.
        default: value (or list, for a sequence) used when a request leaves the feature out; None: required.
        text: "utf8" refuses strings that are not valid UTF-8, "bytes" takes any.
    """

    name: str
    side: Side
    dtype: str
    length: int | None = None
    default: Any = None
    text: Literal["utf8", "bytes"] = "utf8"


@dataclass(frozen=True)
class Table:
    """A `rows` × `width` table, `row_offset` rows into `arena` (a raw file of that dtype and width)."""

    name: str
    arena: str
    dtype: str
    width: int
    row_offset: int
    rows: int


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
    """Which elements of a sequence count: those whose id differs from `value`.

    `of` is an id step, or a string feature; then `value` is "" and empty strings do not count.
    """

    of: str
    value: int | str


@dataclass(frozen=True)
class Embed:
    """Rows of `table` at the ids of step `ids`, pooled over the sequence if `pool` is set, into a block.

    `pool` "sum" adds the rows that `mask` admits (all, without one); "mean" divides that sum by
    max(number of admitted rows, `floor`). FP32 accumulation.
    """

    name: str
    ids: str
    table: str
    side: Side
    offset: int
    width: int
    pool: Literal["sum", "mean"] | None = None
    mask: Mask | None = None
    floor: float = 1.0
    op: Literal["embed"] = "embed"


@dataclass(frozen=True)
class Numeric:
    """A numeric feature through `chain`, in FP32, into one column of a block.

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


IdStep = HashBucket | Vocabulary | IntVocabulary | Bucketize | IdentityId
BlockStep = Embed | Numeric
Step = IdStep | BlockStep
_STEPS: dict[str, type[Any]] = {
    "hash_bucket": HashBucket,
    "vocabulary": Vocabulary,
    "int_vocabulary": IntVocabulary,
    "bucketize": Bucketize,
    "identity": IdentityId,
    "embed": Embed,
    "numeric": Numeric,
}


@dataclass(frozen=True)
class Plan:
    """A whole feature plan; see the module's text.

    Args:
        model: name of the ensemble.
        features: raw inputs in request order.
        tables: embedding tables.
        steps: id steps before the block steps that use them.
        user_width: columns of `user`.
        item_width: columns of `items`.
        handover: dtype of both outputs: "float32" or "float16".
        buckets: candidate counts the DNN is prepared for, ascending; the last one is the maximum N.
        pad: whether `preprocess` pads candidates to the bucket (a `tensorrt_plan` DNN needs it).
    """

    model: str
    features: tuple[Feature, ...]
    tables: tuple[Table, ...]
    steps: tuple[Step, ...]
    user_width: int
    item_width: int
    handover: Literal["float32", "float16"]
    buckets: tuple[int, ...]
    pad: bool
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """Deterministic text: sorted keys, no absent optional values."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read back what `to_json` wrote.

        Raises:
            ValueError: another format version, a step of another runtime, or not a whole plan.
        """
        raw = json.loads(text)
        found = raw.get("format") if isinstance(raw, dict) else None
        if found != FORMAT:
            raise ValueError(f"this runtime reads feature plans of format {FORMAT}, not {found}")
        try:
            return cls(
                model=raw["model"],
                features=tuple(Feature(**f) for f in raw["features"]),
                tables=tuple(Table(**t) for t in raw["tables"]),
                steps=tuple(_step(s) for s in raw["steps"]),
                user_width=raw["user_width"],
                item_width=raw["item_width"],
                handover=raw["handover"],
                buckets=tuple(raw["buckets"]),
                pad=raw["pad"],
            )
        except KeyError as error:
            raise ValueError(f"the feature plan has no {error}") from None
        except TypeError as error:
            raise ValueError(f"the feature plan has a part of another form: {error}") from None

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Load `plan.json`.

        Raises:
            ValueError: it is missing or is not a plan of this format; names the file and the remedy.
        """
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise ValueError(f"{path}: {reason}; rebuild the repository with `bireme build`") from None


def _step(raw: dict[str, Any]) -> Step:
    if raw["op"] not in _STEPS:
        raise ValueError(f"feature plan step '{raw['op']}' is unknown to this runtime")
    values = dict(raw)
    if values.get("mask") is not None:
        values["mask"] = Mask(**values["mask"])
    if "edges" in values:
        values["edges"] = tuple(values["edges"])
    if "chain" in values:
        values["chain"] = tuple((name, constant) for name, constant in values["chain"])
    step: Step = _STEPS[raw["op"]](**values)
    return step
