"""From the tensors of several requests to one column per feature: everything after runs once for all of them.

A request has `users` (nearly always 1) and `candidates`. A user feature has one value (or sequence) per user,
an item feature one per user and candidate. Rows of all requests are laid end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .batching import whole_lists_only
from .plan import Feature, Side
from .strings import FlatStrings
from .wire import WireStrings, join, padded

Array = np.ndarray[Any, Any]
#: Bytes of the longest string that a request may hold.
MAX_TEXT = 1 << 20


class RequestError(ValueError):
    """One request is malformed; the text names the feature. Its batch mates are not affected."""


class BadRequests(Exception):  # noqa: N818 - not one error, but some requests' errors
    """A pass over a whole batch found malformed requests; the others would have gone through.

    Args:
        errors: index in the batch → what is wrong with that request.
    """

    def __init__(self, errors: Mapping[int, RequestError]) -> None:
        super().__init__("; ".join(map(str, errors.values())))
        self.errors = errors


@dataclass(frozen=True)
class Request:
    """One request's tensors, measured and checked.

    Args:
        tensors: feature → array: user [users, 1] or [users, L], item [users, N] or [users, N, L].
        users: number of users.
        candidates: N; 0 if the plan has user features only.
    """

    tensors: Mapping[str, Array]
    users: int
    candidates: int


@dataclass(frozen=True)
class Column:
    """One feature of a whole batch.

    Args:
        values: one element a row, or all sequences end to end; FlatStrings for strings.
        lengths: int64 elements of each row, for a sequence.
    """

    values: Array | FlatStrings
    lengths: Array | None = None


def measure(
    features: Sequence[Feature],
    tensors: Mapping[str, Array],
    max_candidates: int,
    lengths: Sequence[int] | None = None,
) -> Request:
    """Check one request's shapes.

    Args:
        features: the plan's features.
        tensors: what arrived; optional features may be missing.
        max_candidates: largest N.
        lengths: the only N there may be, for a model that ranks a list as a whole.

    Raises:
        RequestError: a feature is missing, has a wrong shape, or disagrees with the others.
    """
    users = candidates = -1
    owner = {"user": "", "item": ""}
    for feature in features:
        array = tensors.get(feature.name)
        if array is None:
            if feature.default is None:
                raise RequestError(f"feature '{feature.name}' is missing and has no default")
            continue
        _check_shape(feature, array)
        if users == -1:
            users, owner["user"] = array.shape[0], feature.name
        elif array.shape[0] != users:
            raise RequestError(
                f"feature '{feature.name}' has {array.shape[0]} users, '{owner['user']}' has {users}"
            )
        if feature.side == "item":
            if candidates == -1:
                candidates, owner["item"] = array.shape[1], feature.name
            elif array.shape[1] != candidates:
                raise RequestError(
                    f"feature '{feature.name}' has {array.shape[1]} candidates,"
                    f" '{owner['item']}' has {candidates}"
                )
    if users == 0:
        raise RequestError(f"feature '{owner['user']}' has 0 users; a request must have at least 1")
    if not any(feature.side == "item" for feature in features):  # the user's half of a plan
        if users == -1:
            raise RequestError("no user feature was sent, so the number of users is unknown")
        return Request(tensors, users, 0)
    if candidates == -1:
        raise RequestError("no item feature was sent, so the number of candidates is unknown")
    if not 1 <= candidates <= max_candidates:
        raise RequestError(
            f"feature '{owner['item']}' has {candidates} candidates;"
            f" a request must have 1 to {max_candidates}"
        )
    if lengths is not None and candidates not in lengths:
        raise RequestError(
            f"feature '{owner['item']}' has {candidates} candidates; {whole_lists_only(lengths)}"
        )
    return Request(tensors, users, candidates)


def _check_shape(feature: Feature, array: Array) -> None:
    sequence = feature.length is not None
    rank = 1 + (feature.side == "item") + (sequence or feature.side == "user")
    if array.ndim != rank:
        raise RequestError(
            f"feature '{feature.name}' has shape {list(array.shape)}; {rank} dimensions are expected"
        )
    if feature.side == "user" and not sequence and array.shape[1] != 1:
        raise RequestError(f"feature '{feature.name}' has {array.shape[1]} values; a user has exactly 1")
    if not sequence or feature.length in (-1, array.shape[-1]):
        return
    if feature.padding is None or array.shape[-1] > (feature.length or 0):
        most = "exactly" if feature.padding is None else "at most"
        raise RequestError(
            f"feature '{feature.name}' has sequences of {array.shape[-1]};"
            f" the model takes {most} {feature.length}"
        )


class Batch:
    """Several measured requests as columns.

    Args:
        requests: the requests, in order.
        features: the plan's features.

    Raises:
        BadRequests: text that is not valid UTF-8, or a number that is not finite.
    """

    def __init__(self, requests: Sequence[Request], features: Sequence[Feature]) -> None:
        self.requests = requests
        users = np.array([request.users for request in requests], dtype=np.int64)
        pairs = users * np.array([request.candidates for request in requests], dtype=np.int64)
        #: rows of each request, per side
        self.rows: dict[Side, Array] = {"user": users, "item": pairs}
        self.columns: dict[str, Column] = {}
        texts = [feature for feature in features if feature.dtype == "string"]
        for feature in features:
            if feature.dtype != "string":
                parts, lengths = self._tensors(feature)
                flat = [part.reshape(-1) for part in parts]
                values = flat[0] if len(flat) == 1 else np.concatenate(flat)
                self.columns[feature.name] = Column(values, lengths)
                self._refuse_not_finite(feature, values, lengths)
        self._add_texts(texts)

    def total(self, side: Side) -> int:
        """Rows of all requests."""
        return int(self.rows[side].sum())

    def user_of_item(self) -> Array:
        """The row of its user for every item row: int64 [total("item")]."""
        candidates = np.array([request.candidates for request in self.requests], dtype=np.int64)
        return np.repeat(np.arange(self.total("user")), np.repeat(candidates, self.rows["user"]))

    def texts(self, features: Sequence[str]) -> FlatStrings:
        """The strings of several features, end to end; nothing is copied."""
        spans = [self._spans[name] for name in features]
        if len(spans) == 1:
            return self._strings.take(slice(*spans[0]))
        starts = np.concatenate([self._strings.starts[first:last] for first, last in spans])
        lengths = np.concatenate([self._strings.lengths[first:last] for first, last in spans])
        return FlatStrings(self._strings.data, starts, lengths)

    def _tensors(self, feature: Feature) -> tuple[list[Array], Array | None]:
        """A feature's tensor of each request, and how many elements each row has, for a sequence."""
        parts, lengths = [], []
        for request, rows in zip(self.requests, self.rows[feature.side].tolist(), strict=True):
            array = request.tensors.get(feature.name)
            if array is None:
                array = _default(feature, rows)
            if feature.length is not None and array.shape[-1] < feature.length:
                array = _padded(feature, array)
            parts.append(array)
            if feature.length is not None:
                lengths.append(np.full(rows, array.shape[-1], dtype=np.int64))
        return parts, np.concatenate(lengths) if lengths else None

    def _add_texts(self, features: Sequence[Feature]) -> None:
        """All strings of the batch become one buffer: joined once, checked once."""
        found = [self._tensors(feature) for feature in features]
        self._strings = join([part for parts, _ in found for part in parts])
        self._spans: dict[str, tuple[int, int]] = {}
        end = 0
        for feature, (parts, lengths) in zip(features, found, strict=True):
            start, end = end, end + sum(part.size for part in parts)
            self._spans[feature.name] = (start, end)
            self.columns[feature.name] = Column(self._strings.take(slice(start, end)), lengths)
        self._refuse_huge(features)
        bad = self._strings.invalid_utf8()
        for feature in features if bad.size else ():
            start, end = self._spans[feature.name]
            mine = bad[(start <= bad) & (bad < end)] - start
            if feature.text == "utf8" and mine.size:
                lengths = self.columns[feature.name].lengths
                raise self.refuse(feature, lengths, mine, lambda _: "is not valid UTF-8")

    def _refuse_huge(self, features: Sequence[Feature]) -> None:
        """No feature is a document; one of many megabytes would hold up everybody else's request."""
        if self._strings.lengths.max(initial=0) <= MAX_TEXT:
            return
        for feature in features:
            column = self.columns[feature.name]
            sizes = self._strings.lengths[slice(*self._spans[feature.name])]
            bad = np.flatnonzero(sizes > MAX_TEXT)
            if bad.size:
                raise self.refuse(feature, column.lengths, bad, partial(_too_long, sizes))

    def _refuse_not_finite(self, feature: Feature, values: Array, lengths: Array | None) -> None:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = np.flatnonzero(~np.isfinite(values))
            raise self.refuse(feature, lengths, bad, lambda i: f"is {values[i]}; it must be finite")

    def refuse(
        self, feature: Feature, lengths: Array | None, elements: Array, say: Callable[[int], str]
    ) -> BadRequests:
        """One error for every request that has a bad value; it tells of the request's first one.

        Args:
            feature: the column's feature.
            lengths: elements of each row, for a sequence.
            elements: int64, ascending: indices of bad values in the column.
            say: index of a bad value → the rest of the sentence.
        """
        rows = elements if lengths is None else np.searchsorted(np.cumsum(lengths), elements, side="right")
        ends = np.cumsum(self.rows[feature.side])
        owners, first = np.unique(np.searchsorted(ends, rows, side="right"), return_index=True)
        errors = {}
        for owner, position in zip(owners.tolist(), first.tolist(), strict=True):
            row = int(rows[position] - ends[owner] + self.rows[feature.side][owner])
            what = f"{self._place(feature, owner, row)}: the value {say(int(elements[position]))}"
            errors[owner] = RequestError(f"feature '{feature.name}'{what}")
        return BadRequests(errors)

    def _place(self, feature: Feature, index: int, row: int) -> str:
        """Where in request `index` its row `row` is."""
        request = self.requests[index]
        user, candidate = divmod(row, request.candidates) if feature.side == "item" else (row, None)
        place = f", user {user}" if request.users > 1 else ""
        return place if candidate is None else f"{place}, candidate {candidate}"


def complete(features: Sequence[Feature], request: Request) -> dict[str, Array]:
    """All features' tensors of a measured request: defaults and padding filled in, single values shaped."""
    tensors = {}
    for feature in features:
        array = request.tensors.get(feature.name)
        item = feature.side == "item"
        if array is None:
            array = _default(feature, request.users * (request.candidates if item else 1))
            shape = (request.users, request.candidates) if item else (request.users,)
            array = array.reshape((*shape, -1) if feature.length is not None or not item else shape)
        if feature.length is not None and array.shape[-1] < feature.length:
            array = _padded(feature, array)
        tensors[feature.name] = array
    return tensors


def _too_long(sizes: Array, index: int) -> str:
    return f"has {sizes[index]} bytes; at most {MAX_TEXT} are taken"


def _padded(feature: Feature, array: Array) -> Array:
    """Sequences filled up to the feature's fixed length."""
    padding = feature.padding.encode() if isinstance(feature.padding, str) else feature.padding
    if isinstance(array, WireStrings):
        return padded(array, feature.length or 0, padding)
    result = np.full((*array.shape[:-1], feature.length or 0), padding, dtype=array.dtype)
    result[..., : array.shape[-1]] = array
    return result


def _default(feature: Feature, rows: int) -> Array:
    kind: Any = object if feature.dtype == "string" else feature.dtype

    def encode(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    if feature.length is None:
        return np.full((rows,), encode(feature.default), dtype=kind)
    row = np.array([encode(value) for value in feature.default], dtype=kind)
    return np.tile(row, (rows, 1))
