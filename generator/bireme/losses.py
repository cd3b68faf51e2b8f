"""What a build rounds on purpose, and how far that may move scores: `bireme verify` goes by it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Loss"]


class Loss(BaseModel):
    """One rounding and one task. Shares are of the task's largest score on the requests in question."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    source: Literal["storage", "precision"]
    """The field of the spec that asks for it: the tables' storage, or FP16 in the dense network."""
    allowed: float
    """What the spec lets it change; the build was refused beyond it."""
    measured: float
    """What it changed on the build's sample requests."""
