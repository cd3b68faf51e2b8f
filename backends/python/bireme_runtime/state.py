"""One batch on its way through a feature plan: what the kernels read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .plan import Feature, Side
from .requests import Array, Batch, Column
from .strings import FlatStrings

__all__ = ["State"]


@dataclass
class State:
    """One batch on its way through the plan.

    A *source* is a feature, or a step that derived values from one: strings (`texts`) or ids.

    Args:
        batch: the requests as columns.
        features: name → feature.
        tables: name → [rows, width].
        vocabularies: file → opened vocabulary.
        outputs: side → FP32 [rows of that side, width].
        limit: largest magnitude that the hand-over dtype holds.
        ids: id step → int64 ids, one an element of its source.
        texts: text step → strings, one an element of its source.
        parsed: parse step → FP32 numbers, one an element of its source.
        engines: file of a subgraph → function from named arrays to named arrays.
        lengths: step → elements of each row, where they are not its feature's.
        feature_of: step → the feature that it is about, for its side, lengths and errors.
    """

    batch: Batch
    features: Mapping[str, Feature]
    tables: Mapping[str, Array]
    vocabularies: Mapping[str, Any]
    outputs: Mapping[Side, Array]
    limit: float
    engines: Mapping[str, Any] = field(default_factory=dict)
    ids: dict[str, Array] = field(default_factory=dict)
    texts: dict[str, FlatStrings] = field(default_factory=dict)
    parsed: dict[str, Array] = field(default_factory=dict)
    lengths: dict[str, Array | None] = field(default_factory=dict)
    feature_of: dict[str, Feature] = field(default_factory=dict)

    def column(self, feature: str) -> Column:
        """A feature's column."""
        return self.batch.columns[feature]

    def origin(self, source: str) -> Feature:
        """The feature that a source is, or was made of."""
        return self.feature_of[source] if source in self.feature_of else self.features[source]

    def lengths_of(self, source: str) -> Array | None:
        """int64 elements of each row of a source; None where a row is a single value."""
        if source in self.lengths:
            return self.lengths[source]
        return self.column(self.origin(source).name).lengths

    def values(self, source: str) -> Array | FlatStrings:
        """A source's values, one an element."""
        for made in (self.ids, self.texts, self.parsed):
            if source in made:
                values: Array | FlatStrings = made[source]
                return values
        return self.column(source).values

    def strings(self, source: str) -> FlatStrings:
        """A string source's values."""
        values = self.values(source)
        assert isinstance(values, FlatStrings)
        return values

    def numbers(self, source: str) -> Array:
        """A numeric source's values."""
        values = self.values(source)
        assert isinstance(values, np.ndarray)
        return values

    def put_ids(self, step: str, source: str, ids: Array) -> None:
        """Result of an id step."""
        self.ids[step] = ids
        self._follow(step, source)

    def put_texts(self, step: str, source: str, texts: FlatStrings) -> None:
        """Result of a text step."""
        self.texts[step] = texts
        self._follow(step, source)

    def put_numbers(self, step: str, source: str, numbers: Array) -> None:
        """Result of a parse step."""
        self.parsed[step] = numbers
        self._follow(step, source)

    def _follow(self, step: str, source: str) -> None:
        """A step is about its source's feature, and its rows have as many elements."""
        self.feature_of[step] = self.origin(source)
        if source in self.lengths:
            self.lengths[step] = self.lengths[source]
