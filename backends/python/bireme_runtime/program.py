"""A feature plan as the C kernel's program.

Not every step has a counterpart there. What has none stays with numpy, and so does everything that such a
step reads; the ids that numpy makes for a step of the kernel reach it as a source of type READY.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .plan import Plan
from .program_checks import require_inside
from .program_fits import Fits
from .program_layout import Program
from .program_writer import Writer
from .requests import Array
from .trace import Trace

__all__ = ["translate"]


def translate(plan: Plan, arenas: Mapping[str, Array], vocabularies: Mapping[str, Any]) -> Program:
    """The program of a plan.

    Args:
        plan: the feature plan.
        arenas: arena file → [rows, width], as `open_arenas` gives it.
        vocabularies: file → opened vocabulary.

    Raises:
        ValueError: the plan is damaged; see `require_inside`.
    """
    require_inside(plan, arenas)
    trace = Trace(plan)
    fits = Fits(plan, trace, vocabularies)
    foreign = {step for step in plan.steps if not fits.step(step)}
    waiting = list(foreign)
    while waiting:  # what numpy's steps read, numpy makes
        made = {trace.steps[name] for name in trace.reads(waiting.pop()) if name in trace.steps}
        waiting += made - foreign
        foreign |= made
    return Writer(plan, arenas, vocabularies, trace, foreign).program()
