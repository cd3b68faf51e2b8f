"""Requests made up from what a subject says about its inputs, without asking the compiler about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from subject_parts import Draw

__all__ = ["make_request"]

#: Strings that must not be confused with any known one: empty, non-ASCII, with a NUL, longer than 64.
_STRANGE = ("", "ключ", "未知", "a\0", "x" * 70, "?", " ")


def make_request(
    draws: Mapping[str, Draw], user: tuple[str, ...], candidates: int, seed: int
) -> dict[str, dict[str, Any]]:
    """One request, in the form that JSON takes.

    Args:
        draws: input → how its values are made up.
        user: the user side inputs; they get one value, the others one a candidate.
        candidates: N.
        seed: same seed, same request.
    """
    rng = np.random.default_rng([seed, candidates])
    request: dict[str, dict[str, Any]] = {"user": {}, "items": {}}
    for name, draw in draws.items():
        if name in user:
            request["user"][name] = _values(draw, 1, rng)[0]
        else:
            request["items"][name] = _values(draw, candidates, rng)
    return request


def _values(draw: Draw, rows: int, rng: np.random.Generator) -> list[Any]:
    length = draw["length"]
    if length is None:
        return _drawn(draw, rows, rng)
    if isinstance(length, list):
        length = int(rng.integers(length[0], length[1] + 1))
    flat = _drawn(draw, rows * length, rng)
    sequences = [flat[row * length : (row + 1) * length] for row in range(rows)]
    if draw["pad"] is not None:
        for sequence in sequences:
            real = int(rng.integers(draw["least"], length + 1))
            sequence[real:] = [draw["pad"]] * (length - real)
    return sequences


def _drawn(draw: Draw, count: int, rng: np.random.Generator) -> list[Any]:
    if draw["kind"] == "ids":
        return [int(value) for value in rng.integers(draw["low"], draw["high"], count)]
    if draw["kind"] == "numbers":
        drawn = rng.uniform(draw["low"], draw["high"], count).astype(np.float32)
        return [float(value) for value in drawn]
    known = [draw["known"][i] for i in rng.integers(0, len(draw["known"]), count)]
    strange = rng.random(count) < draw["unknown"]
    return [
        _STRANGE[rng.integers(len(_STRANGE))] if odd else word
        for word, odd in zip(known, strange, strict=True)
    ]
