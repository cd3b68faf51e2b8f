"""The spec's field `graphs`: which CUDA Graphs a GPU target captures, and what they may cost."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator

__all__ = ["GraphSpec"]


class GraphSpec(BaseModel):
    """Sizes and budget of the CUDA Graphs of one ensemble, all instances on one GPU together.

    What a graph costs is only estimated (emitter/graph_budget.py says from what); the server's log says what
    it was.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    users: tuple[StrictInt, ...] | None = None
    """Numbers of users to capture, for every bucket; the last must be `max_users`. None: 1, 2, 4, 8, … and
    `max_users`, fewer where they do not fit the budget."""
    max: StrictInt | None = Field(default=None, ge=1)
    """Most captures on one GPU. None: as many as the other two allow."""
    memory_mb: StrictInt = Field(default=1024, ge=1)
    """Most memory of one GPU for captured graphs, MB."""
    load_seconds: float = Field(default=30.0, gt=0)
    """Longest that capturing may take while the models load, seconds."""

    @field_validator("users")
    @classmethod
    def _ascending(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (not value or value[0] < 1 or list(value) != sorted(set(value))):
            raise ValueError("users must be positive and strictly ascending")
        return value
