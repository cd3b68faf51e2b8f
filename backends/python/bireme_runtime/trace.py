"""What the steps of a plan are made of: which sources each reads, and whose elements it has."""

from __future__ import annotations

from typing import Any

from .plan import Admitted, BlockStep, Embed, Feature, Mask, Plan, Subgraph
from .text_steps import Element, Parse, Split, sources_of

__all__ = ["Trace"]


class Trace:
    """A plan's steps by name.

    Args:
        plan: the feature plan.
    """

    def __init__(self, plan: Plan) -> None:
        #: features by name
        self.features: dict[str, Feature] = {feature.name: feature for feature in plan.features}
        #: what makes a source: steps by the name of what they make
        self.steps: dict[str, Any] = {}
        for step in plan.steps:
            if isinstance(step, Subgraph):
                self.steps |= {output.name: step for output in step.outputs if output.name}
            elif not isinstance(step, BlockStep):
                self.steps[step.name] = step
        self._origins: dict[str, Feature | None] = {}

    def reads(self, step: Any) -> list[str]:
        """Every source that a step reads, masks and weights included."""
        names = list(sources_of(step))
        mask: Mask | None = step.mask if isinstance(step, (Embed, Admitted)) else None
        while mask is not None:
            names.append(mask.of)
            mask = mask.also
        if isinstance(step, Embed) and step.weights is not None:
            names.append(step.weights)
        return names

    def makes_ids(self, source: str) -> bool:
        """Whether a step makes this source, and makes int64 ids."""
        step = self.steps.get(source)
        return step is not None and not isinstance(step, (Parse, Subgraph)) and step.op not in _TEXTS

    def origin(self, source: str) -> Feature | None:
        """The feature whose elements a source has, one for one; None where its rows have other lengths."""
        if source not in self.steps:
            return self.features[source]
        if source not in self._origins:
            self._origins[source] = self._find(source)
        return self._origins[source]

    def _find(self, source: str) -> Feature | None:
        step = self.steps[source]
        if isinstance(step, (Subgraph, Split, Element)):
            return None
        origins = [self.origin(name) for name in sources_of(step)]
        if None in origins:
            return None
        found = [origin for origin in origins if origin is not None]
        # Sources of both sides side by side have the candidates' elements; see aligned.py.
        return next((feature for feature in found if feature.side == "item"), found[0])


_TEXTS = ("text", "split", "join", "choose", "pick")
