"""The feature plan: what `preprocess` does with a request, as data.

The compiler writes it (`plan.json`), `preprocess` executes it. A plan has four parts:

* `features`: the raw inputs of a request,
* `tables`: where each embedding table lies inside an arena file,
* `steps` (see steps.py): how features become ids, ids become rows, and rows columns of the two outputs,
* the widths of the two outputs, `user` [users, user_width] and `items` [users, candidates, item_width].
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .steps import (
    Admitted,
    BlockStep,
    Bucketize,
    Counted,
    Embed,
    HashBucket,
    IdentityId,
    IdStep,
    IntVocabulary,
    Mask,
    Numeric,
    Side,
    Step,
    Subgraph,
    Vocabulary,
    step_from,
)

__all__ = [
    "FORMAT",
    "Admitted",
    "BlockStep",
    "Bucketize",
    "Counted",
    "Embed",
    "Feature",
    "HashBucket",
    "IdStep",
    "IdentityId",
    "IntVocabulary",
    "Mask",
    "Numeric",
    "Plan",
    "Side",
    "Step",
    "Subgraph",
    "Table",
    "Vocabulary",
]

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
        padding: value of the elements that a row does not have, where the model takes rows of unequal length
            (a sparse or ragged input); what fills up a sequence that is shorter than its fixed length; None:
            every element is one, and a fixed length is exact.
    """

    name: str
    side: Side
    dtype: str
    length: int | None = None
    default: Any = None
    text: Literal["utf8", "bytes"] = "utf8"
    padding: Any = None


@dataclass(frozen=True)
class Table:
    """A `rows` × `width` table, `row_offset` rows into `arena` (a raw file of that dtype and width).

    `dtype` is the storage type, "float32", "float16" or "int8"; see tables.py for its rows.
    """

    name: str
    arena: str
    dtype: str
    width: int
    row_offset: int
    rows: int


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
        listwise: whether a request's N must be one of `buckets`: its scores depend on the other candidates.
        store: kind of the table store, see store.py.
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
    listwise: bool = False
    store: str = "local"
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
                steps=tuple(step_from(s) for s in raw["steps"]),
                user_width=raw["user_width"],
                item_width=raw["item_width"],
                handover=raw["handover"],
                buckets=tuple(raw["buckets"]),
                pad=raw["pad"],
                listwise=raw.get("listwise", False),
                store=raw.get("store", "local"),
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
