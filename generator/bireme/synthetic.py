"""Requests made up from a feature plan: known and unknown strings, empty histories, numbers, any N.

They reach what logged requests seldom do: bucket edges, words that no vocabulary holds, empty sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bireme.requests import Request
from bireme.synthetic_derived import interesting, is_strict, refused_rows
from bireme.synthetic_sequences import arrange, leaders, must_hold_elements, parallel
from bireme_runtime.kernels import _OPERATIONS
from bireme_runtime.plan import (
    Bucketize,
    Embed,
    Feature,
    IdentityId,
    IntVocabulary,
    Numeric,
    Plan,
    Subgraph,
    Vocabulary,
)
from bireme_runtime.text_steps import Element

__all__ = ["UNKNOWN", "edge_counts", "make_requests"]

Array = np.ndarray[Any, Any]
Made = dict[str, dict[str, Any]]

#: How often refused rows of a request are drawn anew.
_ATTEMPTS = 40

#: Strings that must not be confused with any known one: empty, non-ASCII, with a NUL, long.
UNKNOWN = (b"", "ключ".encode(), "未知".encode(), b"a\0", b"x" * 70, b"?")

#: Integers that no table bounds stay below; those that an engine reads, below one of these.
_MOST = 50
_UNKNOWN_TABLE = (3, 10, _MOST)

#: Keys of a vocabulary that values are drawn from.
_DRAWN_FROM = 500


def edge_counts(buckets: Sequence[int], listwise: bool = False) -> list[int]:
    """1, and b−1, b, b+1 around every bucket, as far as a request may go; for whole lists the buckets."""
    if listwise:
        return list(buckets)
    around = {1, *(bucket + d for bucket in buckets for d in (-1, 0, 1))}
    return sorted(count for count in around if 1 <= count <= buckets[-1])


def make_requests(
    plan: Plan,
    words: Mapping[str, Sequence[bytes]],
    counts: Sequence[int],
    seed: int = 0,
    equal_lengths: bool = False,
) -> list[Request]:
    """One request for each entry of `counts`.

    Args:
        plan: the feature plan.
        words: vocabulary file → its keys (bytes, or decimal text for integer keys).
        counts: N of each request.
        seed: same seed, same requests.
        equal_lengths: give a sequence the same length in all of them, as users of one request must have.
    """
    rng = np.random.default_rng(seed)
    shared: dict[str, int] = {}
    return [_fitting(plan, words, count, rng, shared if equal_lengths else {}) for count in counts]


def _fitting(
    plan: Plan,
    words: Mapping[str, Sequence[bytes]],
    count: int,
    rng: np.random.Generator,
    lengths: dict[str, int],
) -> Made:
    """A request whose derived values the model can take; others are drawn anew, a few times."""
    request = _request(plan, words, count, rng, lengths)
    for _ in range(_ATTEMPTS):
        refused = sorted(refused_rows(plan, words, request))
        if not refused:
            break
        other = _request(plan, words, count, rng, lengths)
        if len(refused) == count:
            request = other
        for name, values in other["items"].items():
            for row in refused:
                request["items"][name][row] = values[row]
    return request


def _request(
    plan: Plan,
    words: Mapping[str, Sequence[bytes]],
    count: int,
    rng: np.random.Generator,
    lengths: dict[str, int],
) -> Made:
    """One request; `lengths` (leading sequence → its length) is completed, and kept to."""
    request: Made = {"user": {}, "items": {}}
    leader, needed = parallel(plan, leaders(plan)), must_hold_elements(plan)
    for feature in plan.features:
        if feature.length is not None and leader[feature.name] not in lengths:
            drawn = _length(feature, rng)
            lengths[leader[feature.name]] = max(drawn, 1) if feature.name in needed else drawn
        rows = count if feature.side == "item" else 1
        values = _values(plan, feature, words, rows, lengths.get(leader[feature.name], 0), rng)
        if feature.side == "item":
            request["items"][feature.name] = values
        else:
            request["user"][feature.name] = values[0]
    arrange(plan, request, lambda feature: _draw(plan, feature, words, 1, rng)[0], rng)
    return request


def _length(feature: Feature, rng: np.random.Generator) -> int:
    if feature.length is None or feature.length < 0:
        return int(rng.integers(0, 25))
    return feature.length if feature.padding is None else int(rng.integers(1, feature.length + 1))


def _values(
    plan: Plan,
    feature: Feature,
    words: Mapping[str, Sequence[bytes]],
    rows: int,
    length: int,
    rng: np.random.Generator,
) -> list[Any]:
    if feature.length is None:
        return _draw(plan, feature, words, rows, rng)
    flat = _draw(plan, feature, words, rows * length, rng)
    return [flat[row * length : (row + 1) * length] for row in range(rows)]


def _draw(
    plan: Plan, feature: Feature, words: Mapping[str, Sequence[bytes]], count: int, rng: np.random.Generator
) -> list[Any]:
    steps = [step for step in plan.steps if getattr(step, "feature", None) == feature.name]
    if feature.dtype == "string":
        return _strings(plan, feature, steps, words, count, rng)
    if feature.dtype == "bool":
        return [bool(value) for value in rng.random(count) < 0.5]
    edges = [e for step in steps if isinstance(step, Bucketize) for e in step.edges if np.isfinite(e)]
    if feature.dtype.startswith("int"):
        drawn = _integers(plan, feature, steps, words, edges, count, rng).astype(feature.dtype)
    else:
        drawn = rng.gamma(1.0, 1.5, count)  # non-negative: log1p and sqrt stay finite
        if edges:
            drawn = np.where(rng.random(count) < 0.3, rng.choice(np.array(edges), count), drawn)
        drawn = drawn.astype(np.float32)
    return [value.item() for value in _inside_domain(plan, steps, drawn, rng)]


def _strings(
    plan: Plan,
    feature: Feature,
    steps: Sequence[Any],
    words: Mapping[str, Sequence[bytes]],
    count: int,
    rng: np.random.Generator,
) -> list[bytes]:
    lookups = [step for step in steps if isinstance(step, Vocabulary)]
    pool = [key for step in lookups for key in _some(words, step)]
    # A vocabulary whose unknown strings have no row refuses them, as the original model does.
    strict = [set(words[step.file]) for step in lookups if is_strict(plan, step)]
    known = set(pool)
    derived = [v for v in interesting(plan, feature.name, words) if isinstance(v, bytes) and v not in known]
    if derived:
        pool += derived + [b"%032x" % int(x) for x in rng.integers(0, 2**62, 10)]
    if strict:
        allowed = set.intersection(*strict)
        pool = [key for key in pool if key in allowed]
    if feature.text == "utf8":
        pool = [key for key in pool if _is_utf8(key)]
    pool = pool or [b"%032x" % int(x) for x in rng.integers(0, 2**62, 40)]
    drawn = [pool[i] for i in rng.integers(0, len(pool), count)]
    if not strict:
        for i in np.flatnonzero(rng.random(count) < 0.05):
            drawn[i] = UNKNOWN[int(rng.integers(len(UNKNOWN)))]
    return drawn


def _some(words: Mapping[str, Sequence[bytes]], step: Vocabulary | IntVocabulary) -> Sequence[bytes]:
    """Keys to draw from: of a large vocabulary some hundreds from all over it; all of one that is strict."""
    keys = words[step.file]
    return keys if step.default < 0 else keys[:: max(1, len(keys) // _DRAWN_FROM)]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _integers(
    plan: Plan,
    feature: Feature,
    steps: Sequence[Any],
    words: Mapping[str, Sequence[bytes]],
    edges: Sequence[float],
    count: int,
    rng: np.random.Generator,
) -> Array:
    """Rows of the tables that the feature, or what is computed of it, indexes; keys; values around edges."""
    tables = {table.name: table.rows for table in plan.tables}
    rows = {step.name for step in steps if isinstance(step, (IdentityId, Element))}
    made_by = {
        output.name
        for step in plan.steps
        if isinstance(step, Subgraph) and feature.name in {source.source for source in step.inputs}
        for output in step.outputs
    }
    sizes = [
        tables[step.table] for step in plan.steps if isinstance(step, Embed) and step.ids in rows | made_by
    ]
    inside = [source for step in plan.steps if isinstance(step, Subgraph) for source in step.inputs]
    hidden = any(source.source == feature.name for source in inside)
    sizes += [source.rows for source in inside if source.source == feature.name and source.rows]
    lookups = [step for step in steps if isinstance(step, IntVocabulary)]
    special = [int(key) for step in lookups for key in _some(words, step)]
    special += [int(edge) + d for edge in edges if abs(edge) < 2**31 - 1 for d in (-1, 0, 1)]
    special += [v for v in interesting(plan, feature.name, words) if isinstance(v, int)]
    fits = np.iinfo(feature.dtype)
    special = [value for value in special if fits.min <= value <= fits.max]
    limit = min(sizes, default=None)
    if limit is not None:
        special = [value for value in special if 0 <= value < limit]
    strict = [{int(key) for key in words[step.file]} for step in lookups if is_strict(plan, step)]
    if strict:
        special = sorted(set.intersection(*strict, set(special)))
    if limit is None:  # a table that is hidden in a loop may be small
        limit = int(rng.choice(_UNKNOWN_TABLE)) if hidden else _MOST
    drawn = rng.integers(0, limit, count)
    if special:
        share = 1.0 if strict else 0.8
        drawn = np.where(rng.random(count) < share, rng.choice(special, count), drawn)
    return drawn


def _inside_domain(plan: Plan, steps: Sequence[Any], drawn: Array, rng: np.random.Generator) -> Array:
    """Replace numbers that the feature's transforms would turn into NaN, infinity or more than FP16 holds."""
    chains = [step.chain for step in steps if isinstance(step, Numeric)]
    limit = float(np.finfo(plan.handover).max)

    def fits(values: Array) -> Array:
        inside = [np.abs(_apply(chain, values)) <= limit for chain in chains]
        return np.asarray(np.all(inside, axis=0))

    if not chains or fits(drawn).all():
        return drawn
    reserve = np.concatenate([drawn, np.geomspace(1e-3, 1e6, 200).astype(drawn.dtype), np.arange(-100, 100)])
    reserve = reserve[fits(reserve)].astype(drawn.dtype)
    return np.where(fits(drawn), drawn, rng.choice(reserve, drawn.size)) if reserve.size else drawn


def _apply(chain: Sequence[tuple[str, float | None]], values: Array) -> Array:
    values = values.astype(np.float32)
    with np.errstate(all="ignore"):
        for name, constant in chain:
            constants = () if constant is None else (np.float32(constant),)
            values = _OPERATIONS[name](values, *constants)
    return values
