"""The search for few FP32 layers: pure, knows nothing of networks.

All in FP16 but what must not be; if that is good enough, it is done. Otherwise each layer is tried alone in
FP16, the layers are ordered by the damage that they do, and how many of the worst stay FP32 is bisected.
Then layers, and at last single products, are released again where that costs nothing, the most expensive
first; a single elementwise op is not, for it would only be traded for a Cast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bireme.compiler.fp16.layers import Layer

__all__ = ["Found", "search"]

Nodes = frozenset[str]


@dataclass(frozen=True)
class Found:
    """What the search found.

    Args:
        kept: nodes that stay FP32.
        evaluations: how often the network was tried.
        alone: layer → damage that it does alone in FP16; empty if nobody had to ask.
        complete: whether the evaluations sufficed for the whole search.
    """

    kept: Nodes
    evaluations: int
    alone: Mapping[str, float]
    complete: bool


class _SpentError(Exception):
    """No evaluation is left."""


def search(
    layers: Sequence[Layer],
    forced: Nodes,
    suspect: Nodes,
    damage: Callable[[Nodes], float],
    costs: Mapping[str, int],
    budget: int,
) -> Found:
    """Find few nodes that keep the damage within its limit.

    Args:
        layers: all nodes whose precision is a choice.
        forced: nodes that stay FP32 whatever happens.
        suspect: nodes that stay FP32 at first.
        damage: FP32 nodes → how bad it is; up to 1 is good enough. With all nodes FP32 it is taken to be 0.
        costs: node → what it costs in FP32.
        budget: how often `damage` may be called.
    """
    everything = frozenset(name for layer in layers for name in layer.nodes) | forced
    best = everything
    alone: dict[str, float] = {}
    known: dict[Nodes, float] = {everything: 0.0}

    def ask(kept: Nodes) -> float:
        if kept not in known:
            if len(known) > budget:
                raise _SpentError
            known[kept] = damage(kept)
        return known[kept]

    def cost(nodes: Nodes) -> int:
        return sum(costs.get(name, 1) for name in nodes - forced)

    complete = True
    try:
        if ask(forced | suspect) <= 1:
            best = forced | suspect
        else:
            for layer in layers:
                alone[layer.name] = ask(forced | (everything - frozenset(layer.nodes)))
            order = sorted(layers, key=lambda layer: -alone[layer.name])
            best = _bisect(order, forced, everything, ask)
        for part in _parts(layers, best - forced, cost):
            if ask(best - part) <= 1:
                best -= part
        for layer in layers:
            best = _shrink(frozenset(layer.nodes) & best - forced, best, ask, cost)
    except _SpentError:
        complete = False
        # Whatever was tried and found good, the cheapest.
        best = min((kept for kept, value in known.items() if value <= 1), key=cost)
    return Found(best, len(known) - 1, alone, complete)


def _bisect(order: Sequence[Layer], forced: Nodes, everything: Nodes, ask: Callable[[Nodes], float]) -> Nodes:
    """The fewest of the worst layers that are enough; all of them are."""

    def worst(count: int) -> Nodes:
        return forced.union(*(layer.nodes for layer in order[:count]))

    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if ask(worst(middle)) <= 1:
            high = middle
        else:
            low = middle + 1
    return worst(high) if high < len(order) else everything


def _parts(layers: Sequence[Layer], kept: Nodes, cost: Callable[[Nodes], int]) -> list[Nodes]:
    """What each layer has among the kept nodes, the most expensive first."""
    parts = [frozenset(layer.nodes) & kept for layer in layers]
    return sorted((part for part in parts if part), key=lambda part: -cost(part))


def _shrink(part: Nodes, best: Nodes, ask: Callable[[Nodes], float], cost: Callable[[Nodes], int]) -> Nodes:
    """Release single products of a layer that has to stay as a whole."""
    products = [name for name in part if cost(frozenset({name})) > 1]
    for name in sorted(products, key=lambda node: (-cost(frozenset({node})), node)):
        if len(part) > 1 and ask(best - {name}) <= 1:
            best -= {name}
    return best
