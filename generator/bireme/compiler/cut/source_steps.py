"""The plan's steps that make ids and strings: each is named and made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bireme.compiler.rules.id_steps import make_step
from bireme.compiler.rules.values import Ids, Masked, Raw, Source, Text, plan_mask, raw_feature
from bireme.compiler.tables.vocabularies import StringsSource, VocabularySource
from bireme_runtime import plan as p

__all__ = ["SourceSteps"]


class SourceSteps:
    """Steps for sources; equal sources share one.

    Args:
        sides: the features, whose names no step may have: a mask names a step or a feature.
        ask: called with the tensor and the name of ids that a subgraph computes.
    """

    def __init__(self, sides: Mapping[str, p.Side], ask: Callable[[str, str], None]) -> None:
        self.steps: list[p.Step] = []
        self.vocabularies: dict[str, VocabularySource | StringsSource] = {}
        self._sides = sides
        self._ask = ask
        self._names: dict[tuple[Any, ...], str] = {}

    def name(self, source: Source) -> str:
        """Name of a feature, or of the step that makes a source."""
        feature = raw_feature(source)
        return feature if feature is not None else self.step(source)

    def step(self, value: Source) -> str:
        """Name of the step that makes ids or strings."""
        assert not isinstance(value, Raw)
        if value.key in self._names:
            return self._names[value.key]
        sources = [self.name(source) for source in value.sources] or [value.feature]
        kind = str(value.parameters[0]) if value.kind in ("text", "measure", "compute") else value.kind
        name = f"{value.feature}.{kind}"
        while name in self._names.values() or name in self._sides:
            name = f"{name}.{len(self._names)}"
        self._names[value.key] = name
        if value.kind == "computed":
            self._ask(value.parameters[0], name)
        else:
            self.steps.append(make_step(name, value, sources, self._vocabulary))
        return name

    def mask(self, mask: Masked) -> p.Mask:
        """A mask, and the steps that make what it tests."""
        for test in mask.tests:
            if not isinstance(test.source, Raw):
                self.step(test.source)
        return plan_mask(mask, self._names)

    def _vocabulary(self, value: Ids | Text) -> str:
        """File of a lookup's keys and ids, or of a pick's strings."""
        source: VocabularySource | StringsSource
        if isinstance(value, Text):
            source = StringsSource(value.parameters)
        else:
            assert value.table is not None
            source = VocabularySource(value.kind, value.table, value.overrides, value.parameters[1])
        for file, known in self.vocabularies.items():
            if known.content == source.content:
                return file
        file = f"vocabulary_{len(self.vocabularies)}.bin"
        self.vocabularies[file] = source
        return file
