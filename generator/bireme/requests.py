"""A request as people write it, and the two array forms it takes.

`{"user": {feature: value or list}, "items": {feature: list of N values or lists}}` becomes either the tensors
that Triton takes (one user, N candidates) or the rows that the original model takes (N rows, user repeated).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bireme.errors import ClientError, SpecError
from bireme.user_side import with_user_side
from bireme_runtime.plan import Feature

__all__ = ["Request", "count_candidates", "pad_rows", "part_for", "read_requests", "to_rows", "to_tensors"]

Array = np.ndarray[Any, Any]
Request = Mapping[str, Mapping[str, Any]]


def read_requests(path: Path, user: Collection[str] = ()) -> list[Request]:
    """Read sample requests, one JSON object a line.

    Args:
        path: the file.
        user: features of the user; where a request repeats one for every candidate, it is moved.

    Raises:
        SpecError: the file is missing, or a line is not a request.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SpecError(
            str(path), f"cannot be read: {error.strerror}", "correct `samples` in the spec"
        ) from None
    except UnicodeDecodeError as error:
        raise SpecError(str(path), f"is not UTF-8 text: {error.reason}", "one JSON request a line") from None
    requests: list[Request] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise SpecError(f"{path}:{number}", f"is not JSON: {error}", "one request a line") from None
        if not isinstance(raw, dict) or not all(isinstance(raw.get(key), dict) for key in ("user", "items")):
            raise SpecError(f"{path}:{number}", "is not a request", 'write {"user": {…}, "items": {…}}')
        requests.append(with_user_side(raw, user))
    return requests


def count_candidates(request: Request) -> int:
    """N of a request: the length of its first item feature given as a list, 0 if there is none."""
    return next((len(v) for v in request["items"].values() if isinstance(v, (list, tuple, np.ndarray))), 0)


def to_tensors(features: Sequence[Feature], request: Request) -> dict[str, Array]:
    """The tensors of a request with one user; features left out stay out.

    Args:
        features: the contract's features.
        request: user and item features.

    Returns:
        Feature → user [1, 1] or [1, L], item [1, N] or [1, N, L]; strings as object arrays of bytes.

    Raises:
        ClientError: an unknown feature, or a value of the wrong type or form, by name.
    """
    _refuse_unknown(features, request)
    tensors = {}
    for feature in features:
        given = request["user" if feature.side == "user" else "items"]
        if feature.name not in given:
            continue
        array = _array(feature, given[feature.name])
        rank = (feature.side == "item") + (feature.length is not None)
        if array.ndim != rank:
            wanted = {0: "one value", 1: "a list", 2: "a list of lists of equal length"}[rank]
            raise ClientError(f"feature '{feature.name}'", f"has {array.ndim} dimensions", f"give {wanted}")
        shape = (1, *array.shape) if rank else (1, 1)
        tensors[feature.name] = array.reshape(shape)
    return tensors


def part_for(features: Sequence[Feature], request: Request) -> Request:
    """What of a request a model with these features takes, and at least one feature.

    A tensor tells how many users there are; so where every feature is optional and none is given, the first
    one's default is written out.
    """
    known = {feature.name for feature in features}
    part = {
        side: {name: value for name, value in given.items() if name in known}
        for side, given in request.items()
    }
    if features and not any(part.values()) and features[0].side == "user":
        part["user"] = {features[0].name: features[0].default}
    return part


def to_rows(features: Sequence[Feature], request: Request) -> dict[str, Array]:
    """The rows of a request for the original model; defaults are filled in.

    Returns:
        Feature → [N] or [N, L].
    """
    rows, count = {}, count_candidates(request)
    for feature in features:
        given = request["user" if feature.side == "user" else "items"]
        missing = feature.name not in given
        array = _array(feature, feature.default if missing else given[feature.name])
        if feature.side == "user" or missing:
            array = np.broadcast_to(array, (count, *array.shape)).copy()
        rows[feature.name] = array
    return rows


def pad_rows(features: Sequence[Feature], rows: Mapping[str, Array]) -> dict[str, Array]:
    """Rows whose sequences have the fixed lengths that the features say, filled up with their padding."""
    return {feature.name: _padded(feature, rows[feature.name]) for feature in features}


def _padded(feature: Feature, array: Array) -> Array:
    if feature.length is None or array.shape[-1] >= feature.length or feature.padding is None:
        return array
    padding = feature.padding.encode() if isinstance(feature.padding, str) else feature.padding
    result = np.full((*array.shape[:-1], feature.length), padding, dtype=array.dtype)
    result[..., : array.shape[-1]] = array
    return result


def _refuse_unknown(features: Sequence[Feature], request: Request) -> None:
    for part, side in (("user", "user"), ("items", "item")):
        known = [feature.name for feature in features if feature.side == side]
        for name in request[part]:
            if name not in known:
                near = difflib.get_close_matches(name, [feature.name for feature in features], n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"{part} takes: {', '.join(known)}"
                if near and near[0] == name:
                    hint = f"it belongs under '{'items' if part == 'user' else 'user'}'"
                raise ClientError(f"feature '{name}'", f"is not one of the model's {side} features", hint)


def _array(feature: Feature, value: Any) -> Array:
    where = f"feature '{feature.name}'"
    if feature.dtype == "string":
        return _strings(where, value)
    try:
        array = np.asarray(value)
        if array.size and (
            array.dtype.kind not in "iufb" or (array.dtype.kind == "f" and "int" in feature.dtype)
        ):
            kind = {"U": "text", "S": "text", "O": "mixed or missing values"}.get(array.dtype.kind)
            raise TypeError(f"{kind or array.dtype} is not {feature.dtype}")
        with np.errstate(over="ignore"):
            result = np.asarray(array, dtype=feature.dtype)
        # numpy wraps integers silently, and turns large doubles into infinite floats.
        lost = result != array if result.dtype.kind in "ib" else np.isinf(result) & np.isfinite(array)
        if lost.any():
            raise OverflowError(f"{array[lost].reshape(-1)[0]} does not fit")
        return result
    except (TypeError, ValueError, OverflowError) as error:
        raise ClientError(
            where, f"does not hold {feature.dtype} values: {error}", "check its values"
        ) from None


def _strings(where: str, value: Any) -> Array:
    """Any nesting of str or bytes, as an object array of bytes."""
    try:
        array = np.array(value, dtype=object)
        flat = [item.encode() if isinstance(item, str) else item for item in array.reshape(-1)]
    except (ValueError, UnicodeEncodeError) as error:
        raise ClientError(where, f"does not hold strings: {error}", "give str or bytes") from None
    wrong = [item for item in flat if not isinstance(item, bytes)]
    if wrong:
        kind = "lists of unequal length" if isinstance(wrong[0], (list, tuple)) else type(wrong[0]).__name__
        raise ClientError(
            where, f"holds {kind} where strings are expected", "give str or bytes; pad sequences"
        )
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(array.shape)
