"""Which steps of a feature plan the C kernel can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .plan import (
    Admitted,
    Bucketize,
    Embed,
    Feature,
    HashBucket,
    IdentityId,
    IntVocabulary,
    Mask,
    Numeric,
    Plan,
    Vocabulary,
)
from .program_layout import FUNCTIONS, MAX_WIDTH
from .text_steps import Compute, HashStrong
from .trace import Trace

__all__ = ["Fits"]


@dataclass(frozen=True)
class Fits:
    """Which steps the kernel can do, if numpy makes the ids that it cannot.

    Args:
        plan: the feature plan.
        trace: of that plan.
        vocabularies: file → opened vocabulary.
    """

    plan: Plan
    trace: Trace
    vocabularies: Mapping[str, Any]

    def step(self, step: Any) -> bool:
        """Whether the kernel has a counterpart of this step."""
        if isinstance(step, (HashBucket, HashStrong, Vocabulary)):
            return self._is_text(step.feature)
        if isinstance(step, (IntVocabulary, IdentityId)):
            return self._is_whole(step.feature)
        if isinstance(step, Bucketize):
            return self._is_whole(step.feature) or self._is_number(step.feature)
        if isinstance(step, Compute):
            return self._computes(step)
        if isinstance(step, Embed):
            return self._embeds(step)
        if isinstance(step, Numeric):
            return self._regular(step.feature, step.side) and (
                self._is_whole(step.feature) or self._is_number(step.feature)
            )
        if isinstance(step, Admitted):
            return self._masks(step.mask, step.side)
        return False

    def _feature(self, source: str) -> Feature | None:
        return None if source in self.trace.steps else self.trace.features.get(source)

    def _is_text(self, source: str) -> bool:
        feature = self._feature(source)
        return feature is not None and feature.dtype == "string"

    def _is_number(self, source: str) -> bool:
        feature = self._feature(source)
        return feature is not None and feature.dtype in ("float32", "float64")

    def _is_whole(self, source: str) -> bool:
        """An integer feature, or an id step whose ids lie as its feature's elements do."""
        feature = self._feature(source)
        if feature is not None:
            return feature.dtype in ("int64", "int32", "bool")
        return self.trace.makes_ids(source) and self.trace.origin(source) is not None

    def _regular(self, source: str, side: str) -> bool:
        origin = self.trace.origin(source)
        return origin is not None and origin.side == side

    def _computes(self, step: Compute) -> bool:
        names = [operand for operand in step.of if isinstance(operand, str)]
        if len(names) != 1 or len(step.of) > 2 or not self._is_whole(names[0]):
            return False
        if step.function in ("floordiv", "floormod", "mod"):
            return isinstance(step.of[-1], int) and step.of[-1] > 0  # what is not, numpy does as TensorFlow
        return step.function in FUNCTIONS and (len(step.of) == 2 or step.function in ("cast", "neg"))

    def _embeds(self, step: Embed) -> bool:
        table = next(table for table in self.plan.tables if table.name == step.table)
        if not self._is_whole(step.ids) or not self._regular(step.ids, step.side):
            return False
        if step.mask is not None and not self._masks(step.mask, step.side):
            return False
        if step.pool is None:
            return step.mask is None
        if step.weights is not None:
            weights, ids = self.trace.features[step.weights], self.trace.origin(step.ids)
            if weights.dtype != "float32" or weights.side != step.side or ids is None:
                return False
            if weights.padding is not None and ids.padding is not None:
                return False  # numpy compares where the two end
        return table.width <= MAX_WIDTH

    def _masks(self, mask: Mask, side: str) -> bool:
        if not self._regular(mask.of, side):
            return False
        if self._is_text(mask.of):
            fits = mask.test == "ne"
        else:
            fits = self._is_whole(mask.of) or self._is_number(mask.of)
        return fits and (mask.also is None or self._masks(mask.also, side))
