"""What connects the steps of an ensemble: for the rules about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bireme.lint.finding import Model

__all__ = ["Hop", "Step", "hops", "slo_ms", "steps", "used_in"]


@dataclass(frozen=True)
class Step:
    """One step.

    Args:
        place: in the ensemble's config.
        settings: its message.
        model: what it runs; None: not in this repository, or not readable.
    """

    place: str
    settings: Any
    model: Model | None


@dataclass(frozen=True)
class Hop:
    """One tensor on its way from a step, or from the ensemble's inputs, to a step.

    Args:
        tensor: its name in the ensemble.
        place: of the step that reads it.
        source: (model, tensor of its config) that writes it.
        target: (model, tensor of its config) that reads it.
    """

    tensor: str
    place: str
    source: tuple[Model, Any]
    target: tuple[Model, Any]


def steps(ensemble: Model) -> Sequence[Step]:
    """The steps of an ensemble; none of another model."""
    return [
        Step(f"ensemble_scheduling.step[{index}]", step, ensemble.others.get(step.model_name))
        for index, step in enumerate(ensemble.config.ensemble_scheduling.step)
    ]


def hops(ensemble: Model) -> Iterator[Hop]:
    """Every tensor that a step reads, where both ends are known."""
    sources: dict[str, tuple[Model, Any]] = {
        tensor.name: (ensemble, tensor) for tensor in ensemble.config.input
    }
    for step in steps(ensemble):
        if step.model is not None:
            made = _by_name(step.model.config.output)
            for inner, outer in step.settings.output_map.items():
                if inner in made:
                    sources[outer] = (step.model, made[inner])
    for step in steps(ensemble):
        if step.model is not None:
            taken = _by_name(step.model.config.input)
            for inner, outer in sorted(step.settings.input_map.items()):
                if inner in taken and outer in sources:
                    yield Hop(outer, step.place, sources[outer], (step.model, taken[inner]))


def used_in(model: Model) -> Sequence[str]:
    """Names of the ensembles of which a model is a step."""
    return [
        name
        for name, other in sorted(model.others.items())
        if any(step.model_name == model.name for step in other.config.ensemble_scheduling.step)
    ]


def slo_ms(model: Model) -> float | None:
    """Time that a request may take: as the reader says, else the config's parameter `slo_ms`."""
    if model.settings.slo_ms is not None:
        return model.settings.slo_ms
    try:
        return float(model.parameter("slo_ms") or "")
    except ValueError:
        return None


def _by_name(tensors: Any) -> Mapping[str, Any]:
    return {tensor.name: tensor for tensor in tensors}
