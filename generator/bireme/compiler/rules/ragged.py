"""What a graph computes from a ragged input's row splits alone: row numbers, lengths, masks.

TensorFlow writes `value_rowids`, `row_lengths` and the like as chains of a dozen ops that change from release
to release. Such a chain depends on nothing but the splits, so it is not read but run: on a few splits that
tell apart all the things it could be. What agrees with one of them on every sample has its meaning; the check
of the passes (acceptance.py) sees it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bireme.compiler.check import as_function
from bireme.compiler.graph import Graph, node_of
from bireme.compiler.rules.sparse import Kept, Padded, Segments, Sizes, Splits
from bireme.compiler.rules.values import Count

__all__ = ["structure"]

Array = np.ndarray[Any, Any]
#: Row lengths to run on: empty rows at either end and in the middle, one row, equal rows, no element at all.
_SAMPLES = (
    [2, 0, 3, 1, 0],
    [0, 1, 5, 0, 0, 2],
    [4],
    [1, 1, 1],
    [2, 2, 2, 2],
    [0],
    [0, 0, 0],
    [3, 7, 1, 6, 2, 9, 4],
)
#: Ops that read the splits together with the values, or whose results are no plain numbers.
_SKIPPED = {"Placeholder", "Const", "Assert", "NoOp"}


def structure(graph: Graph, feature: str, splits: Splits) -> dict[str, Any]:
    """Tensor → meaning, for the tensors that depend on one ragged input's row splits only.

    Args:
        graph: the folded graph.
        feature: the signature input of the splits.
        splits: their meaning.
    """
    placeholder = graph.features[feature]
    mine = {placeholder}
    for node in graph.nodes.values():
        sources = [node_of(ref) for ref in node.inputs if graph.constant(ref) is None]
        if sources and node.op not in _SKIPPED and all(source in mine for source in sources):
            mine.add(node.name)
    refs = [graph.nodes[name].output for name in graph.nodes if name in mine and name != placeholder]
    if not refs:
        return {}
    subgraph = graph.keep(graph.ancestors(refs))
    run = as_function(subgraph, {ref: ref for ref in refs})
    results = [run({feature: np.append(0, np.cumsum(lengths))}) for lengths in _SAMPLES]
    found = {ref: _meaning([result[ref] for result in results], splits.kept) for ref in refs}
    return {ref: meaning for ref, meaning in found.items() if meaning is not None}


def _meaning(results: Sequence[Array], kept: Kept) -> Any:
    for wanted, meaning in _known(kept):
        if all(_same(wanted(np.array(n)), result) for n, result in zip(_SAMPLES, results, strict=True)):
            return meaning
    return None


def _same(wanted: Array, result: Array) -> bool:
    return wanted.shape == result.shape and bool((wanted == result).all())


def _known(kept: Kept) -> list[tuple[Callable[[Array], Array], Any]]:
    """What lengths of rows can be turned into, and its meaning."""
    assert kept.mask is not None
    count = Count(kept.mask, ("R",))
    mask = replace(kept.mask, shape=("R", Padded(kept)))

    def numbers(n: Array) -> Array:
        return np.repeat(np.arange(len(n)), n)

    def present(n: Array) -> Array:
        return np.asarray(np.arange(n.max(initial=0)) < n[:, None])

    return [
        (numbers, Segments(kept)),
        (lambda n: np.append(0, np.cumsum(n)), Splits(kept)),
        (lambda n: n, count),
        (lambda n: n[:, None], replace(count, shape=("R", 1))),
        (lambda n: np.maximum(n, 1), replace(count, floor=1.0)),
        (lambda n: np.maximum(n, 1)[:, None], replace(count, shape=("R", 1), floor=1.0)),
        (present, mask),
        (lambda n: present(n)[..., None], replace(mask, shape=(*mask.shape, 1))),
        (lambda n: np.array(len(n)), Sizes(("R",), scalar=True)),
        (lambda n: np.array([len(n)]), Sizes(("R",))),
    ]
