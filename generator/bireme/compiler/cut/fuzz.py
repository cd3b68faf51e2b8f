"""Rows that are made up to try a piece of the original model: small values, and values around its constants.

A branch that one extreme row decides for all ("if any price > 1000") shows itself at such values only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bireme.compiler.check import Arrays
from bireme.compiler.graph import Graph, read_graph_def, tf

__all__ = ["ROWS", "made_up_rows"]

#: Rows of each round.
ROWS = 7
_LENGTH = 5
#: Text that string ops accept: none of it is a number, or all of it.
_WORDS = ([b"a", b"b|c", b"", b" X ", "é".encode(), b"12"], [b"0", b"1", b"12", b"3", b"7", b"20"])
#: Integers that are made up stay below.
_MOST = (40, 3)
#: Rounds with values around the constants, and elements of the largest constant that they are taken from.
_ROUNDS = 8
_SMALL = 64
#: Share of the values that are such ones.
_SPECIAL = 0.15


def made_up_rows(piece: Graph, rows_of: Mapping[str, int]) -> Iterator[Arrays]:
    """Rounds of rows for a piece's inputs.

    Args:
        piece: the piece.
        rows_of: input → rows of the smallest table that it indexes; 0: none is known.
    """
    numbers, texts = _constants(piece)
    for most, words in itertools.product(_MOST, _WORDS):
        rng = np.random.default_rng(0)
        yield {
            name: _values(piece, name, words, most, rows_of.get(name, 0), [], rng) for name in piece.features
        }
    for seed in range(_ROUNDS if len(numbers) or texts else 0):
        rng = np.random.default_rng(seed)
        words = [*_WORDS[seed % 2], *texts]
        yield {
            name: _values(piece, name, words, _MOST[seed % 2], rows_of.get(name, 0), numbers, rng)
            for name in piece.features
        }


def _constants(piece: Graph) -> tuple[list[float], list[bytes]]:
    """What values may be compared with: numbers, and those beside them; and text."""
    nodes = list(piece.nodes.values())
    for function in piece.library.function if piece.library is not None else ():
        nodes += read_graph_def(tf.compat.v1.GraphDef(node=function.node_def))
    numbers, texts = set[float](), set[bytes]()
    for value in (node.value for node in nodes if node.value is not None and node.value.size <= _SMALL):
        if value.dtype.kind in "iuf":
            found = value.reshape(-1).astype(np.float64)
            for number in found[np.isfinite(found)].tolist():
                numbers |= {number - 1, number, number + 1, 2 * number, -number}
        elif value.dtype.kind == "O":
            texts |= {text for text in value.reshape(-1) if isinstance(text, bytes)}
    return sorted(numbers), sorted(texts)


def _values(
    piece: Graph,
    name: str,
    words: list[bytes],
    most: int,
    rows: int,
    special: list[float],
    rng: np.random.Generator,
) -> np.ndarray[Any, Any]:
    attr = piece.nodes[piece.features[name]].attr
    dims = [d.size for d in attr["shape"].shape.dim]
    shape = (ROWS, *(d if d > 0 else _LENGTH for d in dims[1:]))
    dtype = tf.as_dtype(attr["dtype"].type)
    if dtype == tf.string:
        drawn = [words[i] for i in rng.integers(0, len(words), shape).reshape(-1)]
        return np.array(drawn, object).reshape(shape)
    if dtype == tf.bool:
        return rng.random(shape) < 0.5
    whole = dtype.is_integer
    plain = rng.integers(0, min(most, rows or most), shape) if whole else rng.gamma(1.0, 2.0, shape)
    limits = (dtype.min, dtype.max) if not rows else (0, rows - 1)
    fits = [number for number in special if limits[0] <= number <= limits[1]]
    if fits:
        plain = np.where(rng.random(shape) < _SPECIAL, rng.choice(fits, shape), plain)
    return np.asarray(plain).astype(dtype.as_numpy_dtype)
