"""From the tensors of several requests to one column per feature: everything after runs once for all of them.

A request has `users` (nearly always 1) and `candidates`. A user feature has one value (or sequence) per user,
an item feature one per user and candidate. Rows of all requests are laid end to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .plan import Feature, Side
from .strings import FlatStrings

Array = np.ndarray[Any, Any]


class RequestError(ValueError):
    """One request is malformed; the text names the feature. Its batch mates are not affected.

    Args:
        message: what is wrong.
        index: which request of the batch, where the error was found in a pass over all of them.
    """

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class Request:
    """One request's tensors, measured and checked.

    Args:
        tensors: feature → array: user [users, 1] or [users, L], item [users, N] or [users, N, L].
        users: number of users.
        candidates: N.
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


def measure(features: Sequence[Feature], tensors: Mapping[str, Array], max_candidates: int) -> Request:
    """Check one request's shapes.

    Args:
        features: the plan's features.
        tensors: what arrived; optional features may be missing.
        max_candidates: largest N.

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
    if candidates == -1:
        raise RequestError("no item feature was sent, so the number of candidates is unknown")
    if not 1 <= candidates <= max_candidates:
        raise RequestError(
            f"feature '{owner['item']}' has {candidates} candidates;"
            f" a request must have 1 to {max_candidates}"
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
    if sequence and feature.length != -1 and array.shape[-1] != feature.length:
        raise RequestError(
            f"feature '{feature.name}' has sequences of {array.shape[-1]};"
            f" the model takes exactly {feature.length}"
        )


class Batch:
    """Several measured requests as columns.

    Args:
        requests: the requests, in order.
        features: the plan's features.
    """

    def __init__(self, requests: Sequence[Request], features: Sequence[Feature]) -> None:
        self.requests = requests
        users = np.array([request.users for request in requests], dtype=np.int64)
        pairs = users * np.array([request.candidates for request in requests], dtype=np.int64)
        #: rows of each request, per side
        self.rows: dict[Side, Array] = {"user": users, "item": pairs}
        self.columns = {feature.name: self._column(feature) for feature in features}

    def total(self, side: Side) -> int:
        """Rows of all requests."""
        return int(self.rows[side].sum())

    def _column(self, feature: Feature) -> Column:
        parts, lengths = [], []
        for request, rows in zip(self.requests, self.rows[feature.side].tolist(), strict=True):
            array = request.tensors.get(feature.name)
            if array is None:
                array = _default(feature, rows)
            parts.append(array.reshape(-1))
            if feature.length is not None:
                lengths.append(np.full(rows, array.shape[-1], dtype=np.int64))
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
        values = FlatStrings.from_objects(flat) if feature.dtype == "string" else flat
        column = Column(values, np.concatenate(lengths) if lengths else None)
        self._refuse_bad_values(feature, column)
        return column

    def _refuse_bad_values(self, feature: Feature, column: Column) -> None:
        if isinstance(column.values, FlatStrings):
            bad = column.values.first_invalid_utf8() if feature.text == "utf8" else -1
            if bad >= 0:
                raise self.error(feature, column.lengths, bad, "is not valid UTF-8")
        elif column.values.dtype.kind == "f" and not np.isfinite(column.values).all():
            bad = int(np.flatnonzero(~np.isfinite(column.values))[0])
            raise self.error(feature, column.lengths, bad, f"is {column.values[bad]}; it must be finite")

    def error(self, feature: Feature, lengths: Array | None, element: int, what: str) -> RequestError:
        """The error of the request that element `element` of a column belongs to.

        Args:
            feature: the column's feature.
            lengths: elements of each row, for a sequence.
            element: index into the column's values.
            what: the rest of the sentence.
        """
        row = element if lengths is None else int(np.searchsorted(np.cumsum(lengths), element, side="right"))
        index = int(np.searchsorted(np.cumsum(self.rows[feature.side]), row, side="right"))
        if feature.side == "user":
            place = ""
        else:
            first = int(self.rows["item"][:index].sum())
            place = f", candidate {(row - first) % self.requests[index].candidates}"
        return RequestError(f"feature '{feature.name}'{place}: the value {what}", index)


def _default(feature: Feature, rows: int) -> Array:
    kind: Any = object if feature.dtype == "string" else feature.dtype

    def encode(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    if feature.length is None:
        return np.full((rows,), encode(feature.default), dtype=kind)
    row = np.array([encode(value) for value in feature.default], dtype=kind)
    return np.tile(row, (rows, 1))
