"""Made-up values for features that other strings and integers are derived from.

`interesting` goes back from what a derived value is compared with (a vocabulary's words, a constant) to raw
values that lead there. `refused_rows` runs the plan's own kernels to find rows that a request must not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bireme.requests import Request, to_rows
from bireme_runtime.kernels import KERNELS
from bireme_runtime.plan import BlockStep, Embed, IntVocabulary, Plan, Vocabulary
from bireme_runtime.requests import BadRequests, Batch
from bireme_runtime.requests import Request as Measured
from bireme_runtime.state import State
from bireme_runtime.text_functions import TEXTS
from bireme_runtime.text_steps import (
    DERIVED_STEPS,
    Compute,
    Cross,
    Join,
    Measure,
    Parse,
    Split,
    Text,
    sources_of,
    to_bytes,
    to_text,
)

__all__ = ["interesting", "is_strict", "refused_rows"]

_MOST = 300  # values of one source: enough for small vocabularies, and quick
_LARGE = (-1, -7, 2**31 - 1, -(2**31), 2**31 + 5, 2**40 + 3, -(10**12))
_NUMBERS = (b"0", b"7", b"-3", b"12", b" 41 ", b"2.5", b"1e2", b"-0.125")


def is_strict(plan: Plan, step: Vocabulary | IntVocabulary) -> bool:
    """Whether keys that a vocabulary does not hold have no row: the original cannot take them either."""
    return step.default < 0 and any(isinstance(s, Embed) and s.ids == step.name for s in plan.steps)


def interesting(plan: Plan, source: str, words: Mapping[str, Sequence[bytes]]) -> list[Any]:
    """Values (bytes or integers) of a source that make a difference to the steps behind it."""
    found: list[Any] = []
    for step in plan.steps:
        if isinstance(step, BlockStep) or source not in sources_of(step):
            continue
        if isinstance(step, Vocabulary):
            found += words[step.file][:_MOST]
        elif isinstance(step, IntVocabulary):
            found += [int(key) for key in words[step.file][:_MOST]]
        elif isinstance(step, Compute):
            constants = [operand for operand in step.of if isinstance(operand, int)]
            found += [constant + d for constant in constants for d in (-1, 0, 1)]
            found += _LARGE if step.function in ("floormod", "mod", "cast") else ()
            found += interesting(plan, step.name, words) if step.function in ("cast", "minimum") else []
        else:
            wanted = interesting(plan, step.name, words) if step.op in DERIVED_STEPS else []
            found += [value for text in wanted for value in _before(step, source, text)] + _typical(step)
    return list(dict.fromkeys(found))[:_MOST]


def _typical(step: Any) -> list[Any]:
    """Values for a step that is not compared with anything."""
    if isinstance(step, Parse) or (isinstance(step, Measure) and step.function == "integer"):
        return list(_NUMBERS)
    if isinstance(step, Cross) or (isinstance(step, Text) and step.function == "as_string"):
        return list(_LARGE)
    if isinstance(step, Measure) and step.function == "equals":
        return [to_bytes(step.parameters[0])]
    if isinstance(step, Text) and step.function in ("lower", "upper"):
        return [b"MiXed", "ÄöÜ".encode()]
    if isinstance(step, Text) and step.function == "strip":
        return [b" \t padded \r\n", b"  "]
    if isinstance(step, Split) or (isinstance(step, Text) and step.function == "part"):
        cut = to_bytes(step.parameters[0]) or b" "
        return [
            cut.join(parts) for parts in ([b"a"], [b"a", b"b"], [b"", b"b", b"c"], [b"a"] * 6, [b"b"] * 9)
        ]
    return []


def _before(step: Any, source: str, text: Any) -> Iterator[Any]:
    """Values of `source` that the step may turn into `text`."""
    if isinstance(step, Join) and isinstance(text, bytes):
        yield from _joined(step, source, text)
    elif isinstance(step, Split) and isinstance(text, bytes):
        cut = to_bytes(step.parameters[0]) or b" "
        yield from (text, cut.join([b"x", text]), cut.join([text, text]))
    elif isinstance(step, Text) and isinstance(text, bytes):
        before = _BEFORE.get(step.function)
        yield from before(text, *step.parameters) if before is not None else [text]


def _joined(step: Join, source: str, text: bytes) -> Iterator[bytes]:
    """The piece of a joined text that a source has, if every piece can be told."""
    pieces = text.split(to_bytes(step.separator)) if step.separator else []
    if not step.separator and len(step.parts) == 3 and step.parts[1][0] == "constant":
        first, _, second = text.partition(to_bytes(step.parts[1][1]))
        pieces = [first, to_bytes(step.parts[1][1]), second]
    if len(pieces) == len(step.parts):
        for (kind, name), piece in zip(step.parts, pieces, strict=True):
            if kind == "source" and name == source:
                yield piece


def _as_number(text: bytes, dtype: str, _: str) -> list[Any]:
    try:
        return [int(text) if "int" in dtype else float(text)]
    except ValueError:
        return []


_BEFORE: dict[str, Callable[..., list[Any]]] = {
    "lower": lambda text: [text, *([text.upper()] if text.upper().lower() == text else [])],
    "upper": lambda text: [text, *([text.lower()] if text.lower().upper() == text else [])],
    "strip": lambda text: [text, b" \t" + text + b"\n"],
    "substr": lambda text, position, *_: [b"x" * max(position, 0) + text],
    "part": lambda text, cut, _, index, *__: [(to_bytes(cut) or b" ").join([*[b"x"] * index, text, b"y"])],
    "as_string": _as_number,
}


def refused_rows(plan: Plan, words: Mapping[str, Sequence[bytes]], request: Request) -> set[int]:
    """Candidates whose values the plan's derived steps refuse, or turn into ids without a row.

    What depends on a vocabulary's ids is not known here and not judged.
    """
    if not any(step.op in DERIVED_STEPS for step in plan.steps):
        return set()
    rows = to_rows(plan.features, request)
    count = len(next(iter(rows.values())))
    left, refused = list(range(count)), set[int]()
    while left:
        bad = _refused(plan, words, rows, left)
        if not bad:
            break
        refused |= {left[index] for index in bad}
        left = [row for row in left if row not in refused]
    return refused


def _refused(
    plan: Plan, words: Mapping[str, Sequence[bytes]], rows: Mapping[str, Any], which: Sequence[int]
) -> set[int]:
    """Of some rows, each taken for a request of its own, the refused ones of the first step that refuses."""
    requests = [Measured(_tensors(plan, rows, row), 1, 1) for row in which]
    batch = Batch(requests, plan.features)
    tables = {t.name: np.broadcast_to(np.float32(0), (t.rows, t.width)) for t in plan.tables}
    outputs: Mapping[Any, Any] = {
        "user": np.empty((len(which), plan.user_width), np.float32),
        "item": np.empty((len(which), plan.item_width), np.float32),
    }
    features = {feature.name: feature for feature in plan.features}
    state = State(batch, features, tables, {}, outputs, float(np.finfo(plan.handover).max))
    known = set(features)
    for step in plan.steps:
        if isinstance(step, (Vocabulary, IntVocabulary)):
            strange = _strange(plan, step, words, state) if step.feature in known else set()
            if strange:
                return strange
        elif step.op != "subgraph" and known.issuperset(sources_of(step)):
            short = _short(step, state) if isinstance(step, Text) else set()
            if short:
                return short
            try:
                KERNELS[step.op](step, state)
            except BadRequests as error:
                return set(error.errors)
            known.add(step.name)
    return set()


def _short(step: Text, state: State) -> set[int]:
    """Rows without the part that a step takes, where the original needs one."""
    if step.function != "part" or not step.parameters[-1]:
        return set()
    separator, most, index, *_ = step.parameters
    nothing = to_text(b"\xff no part \xfe")
    parts = TEXTS["part"](state.strings(step.feature), separator, most, index, nothing)
    return {row for row in range(len(parts)) if parts[row] == to_bytes(nothing)}


def _strange(plan: Plan, step: Any, words: Mapping[str, Sequence[bytes]], state: State) -> set[int]:
    """Rows with a value that a strict vocabulary does not hold."""
    if not is_strict(plan, step):
        return set()
    values, keys = state.values(step.feature), set(words[step.file])
    lengths = state.lengths_of(step.feature)
    owners = np.arange(len(values)) if lengths is None else np.repeat(np.arange(len(lengths)), lengths)
    texts = [v if isinstance(v, bytes) else b"%d" % v for v in (values[i] for i in range(len(values)))]
    known = np.array([text in keys for text in texts], bool)
    return set(owners[~known].tolist())


def _tensors(plan: Plan, rows: Mapping[str, Any], row: int) -> dict[str, Any]:
    tensors = {}
    for feature in plan.features:
        value = rows[feature.name][row]
        lead = (1,) if feature.side == "user" and feature.length is not None else (1, 1)
        array = np.empty(1, object) if feature.dtype == "string" else np.empty(1, feature.dtype)
        if feature.length is None:
            array[0] = value
            tensors[feature.name] = array.reshape(lead)
        else:
            tensors[feature.name] = np.asarray(value).reshape(*lead, -1)
    return tensors
