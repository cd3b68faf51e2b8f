"""Sample requests that the passes are checked on: some of the user's, and made-up ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bireme.errors import ClientError, SpecError
from bireme.requests import Request, read_requests, to_tensors
from bireme.synthetic import UNKNOWN, edge_counts, make_requests
from bireme_runtime.plan import Plan
from bireme_runtime.requests import RequestError, measure

__all__ = ["Samples", "choose_samples"]

#: How many of either kind: enough for every edge of a few buckets, few enough for a second's work.
_COUNT = 12
_LARGEST = 200
#: Candidates of a made-up example.
_SHOWN = 10
#: Values that are made up in search of it.
_TRIED_VALUES = 20_000
#: For buckets that are too large to be checked at their edges.
_USUAL = (1, 7, 50)


@dataclass(frozen=True)
class Samples:
    """Requests that every pass is checked on.

    Args:
        given: a few of the user's.
        made: made-up ones at bucket edges.
        sparse: the last of these, less every optional feature.
        example: the first of all, as text.
    """

    given: tuple[Request, ...]
    made: tuple[Request, ...]
    sparse: Request
    example: Request


def choose_samples(path: Path | None, plan: Plan, words: Mapping[str, Sequence[bytes]]) -> Samples:
    """Requests to check on, and an example to show.

    Args:
        path: the user's sample requests, or None.
        plan: the feature plan.
        words: vocabulary file → its keys.

    Raises:
        SpecError: a sample request does not fit the model, by its number.
    """
    given = (
        read_requests(path, [f.name for f in plan.features if f.side == "user"]) if path is not None else []
    )
    lengths = plan.buckets if plan.listwise else None
    for number, request in enumerate(given, start=1):
        try:
            measure(plan.features, to_tensors(plan.features, request), plan.buckets[-1], lengths)
        except ClientError as error:
            where = f"{path}: request {number}"
            raise SpecError(where, f"{error.where} {error.message}", error.hint) from None
        except RequestError as error:
            hint = "correct the sample, or raise the largest of `buckets` if it has too many candidates"
            raise SpecError(f"{path}: request {number}", str(error), hint) from None
    edges = [n for n in edge_counts(plan.buckets, plan.listwise) if n <= _LARGEST][:_COUNT]
    usual = [n for n in _USUAL if n <= plan.buckets[-1]] if lengths is None else [plan.buckets[0]]
    made = make_requests(plan, words, sorted({*edges, *usual}))
    sparse = _without_optional(plan, made[-1])
    example = given[0] if given else _presentable(plan, words)
    return Samples(tuple(given[:_COUNT]), tuple(made), sparse, _as_text(example))


def _presentable(plan: Plan, words: Mapping[str, Sequence[bytes]]) -> Request:
    """A made-up request to show: some candidates, a history, and no word that the model cannot know.

    Where no such one turns up (among hundreds of features something is odd in nearly all), the least odd.
    """
    count = plan.buckets[0] if plan.listwise else min(_SHOWN, plan.buckets[-1])
    tries = max(4, _TRIED_VALUES // (count * len(plan.features)))
    requests = (make_requests(plan, words, [count], seed)[0] for seed in range(tries))
    best, oddities = None, 0
    for request in requests:
        found = _oddities(request)
        if best is None or found < oddities:
            best, oddities = request, found
        if not oddities:
            break
    assert best is not None
    return best


def _oddities(request: Request) -> int:
    """How many empty histories and unknown words a request has."""
    values = [value for part in request.values() for value in part.values()]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return values.count([]) + sum(item in UNKNOWN for item in flat if isinstance(item, bytes))


def _without_optional(plan: Plan, request: Request) -> Request:
    """Only what has no default, and one item feature to say how many candidates there are."""
    optional = {feature.name for feature in plan.features if feature.default is not None}
    items = {name: value for name, value in request["items"].items() if name not in optional}
    return {
        "user": {name: value for name, value in request["user"].items() if name not in optional},
        "items": items or dict(list(request["items"].items())[:1]),
    }


def _as_text(request: Request) -> Request:
    """The request in JSON's types: bytes become text, bytes that are no UTF-8 become signs for that."""

    def convert(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        return [convert(item) for item in value] if isinstance(value, list) else value

    return {
        part: {name: convert(value) for name, value in request[part].items()} for part in ("user", "items")
    }
