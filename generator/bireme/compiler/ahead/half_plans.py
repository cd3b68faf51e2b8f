"""A feature plan as two: what the user's side needs, and what the candidates' side needs.

A step belongs to the half whose columns it ends up in. A feature may belong to both: a cross of user and item
is computed with the candidates, so its user features have to travel with every slice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from bireme_runtime.plan import Plan, Side, Step, Subgraph

__all__ = ["half_plan", "needed_files"]

#: Fields of a step that say what it makes, not what it reads.
_OWN = ("name", "op", "side")


def half_plan(plan: Plan, side: Side, model: str) -> Plan:
    """The part of a plan that writes one side's columns; their places stay as they are.

    Args:
        plan: the whole plan.
        side: "user" gives a plan with item_width 0, "item" one with user_width 0.
        model: name of the plan.

    Returns:
        A plan with the steps, features and tables that these columns need, in the order of the whole plan.
    """
    steps: dict[str, Step] = {step.name: step for step in plan.steps}
    for step in plan.steps:
        if isinstance(step, Subgraph):
            steps |= {output.name: step for output in step.outputs if output.name}
    needed: dict[str, None] = {}
    pending = [step.name for step in plan.steps if getattr(step, "side", None) == side]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed[name] = None
            if name in steps:
                needed[steps[name].name] = None
                pending.extend(_references(steps[name]))
    # Both halves map the very files of the whole model, so an arena's tables stay together.
    arenas = {table.arena for table in plan.tables if table.name in needed}
    return dataclasses.replace(
        plan,
        model=model,
        features=tuple(feature for feature in plan.features if feature.name in needed),
        tables=tuple(table for table in plan.tables if table.arena in arenas),
        steps=tuple(step for step in plan.steps if step.name in needed),
        user_width=plan.user_width if side == "user" else 0,
        item_width=plan.item_width if side == "item" else 0,
        pad=plan.pad and side == "item",
    )


def needed_files(plan: Plan, files: Iterable[str]) -> tuple[str, ...]:
    """Which of `files` a plan names, sorted."""
    named = {table.arena for table in plan.tables}
    named.update(reference for step in plan.steps for reference in _references(step))
    return tuple(sorted(named & set(files)))


def _references(step: Any) -> Iterator[str]:
    """Every text that a step holds: names of features, steps, tables and files are among them.

    A constant that happens to be called like a feature only makes the half larger than it had to be.
    """
    for field in dataclasses.fields(step):
        if field.name not in _OWN:
            yield from _texts(getattr(step, field.name))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from _texts(inner)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _references(value)
