"""CUDA Graphs whose specs Triton skips or refuses."""

from __future__ import annotations

from collections.abc import Iterator

from bireme.lint.finding import Issue, Model, Rule
from bireme.lint.rules_graphs import dims_of, specs_of

__all__ = ["GRAPH_SPEC_RULES"]


def _twice(model: Model) -> Iterator[Issue]:
    seen: dict[str, str] = {}
    for place, spec in specs_of(model):
        key = f"{spec.batch_size} {dims_of(spec)}"
        if key in seen:
            yield Issue(place, f"is the same shape as {seen[key]}, and is skipped", "remove one of them")
        seen.setdefault(key, place)


def _bad_batch_size(model: Model) -> Iterator[Issue]:
    most = model.config.max_batch_size
    for place, spec in specs_of(model):
        bound = spec.graph_lower_bound.batch_size if spec.HasField("graph_lower_bound") else spec.batch_size
        if most and not 1 <= bound <= spec.batch_size <= most:
            yield Issue(
                f"{place}.batch_size",
                f"covers batches {bound} to {spec.batch_size}, and 1 to {most} are possible: Triton refuses",
                f"keep 1 ≤ lower bound ≤ batch_size ≤ {most}",
            )


GRAPH_SPEC_RULES = (
    Rule("G11", "warning", "the same graph twice", _twice, "the second is skipped", "remove one of them"),
    Rule(
        "G12",
        "error",
        "`batch_size` or its bound outside of 1 to `max_batch_size`",
        _bad_batch_size,
        "the model does not load",
        "keep 1 ≤ bound ≤ `batch_size` ≤ `max_batch_size`",
    ),
)
