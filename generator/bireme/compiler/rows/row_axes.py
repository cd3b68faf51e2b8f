"""Axes of row-wise ops, counted in the lifted tensors."""

from __future__ import annotations

from bireme.compiler.rows.lifted import Attributes
from bireme.compiler.rows.row_values import Const, Lifted

__all__ = ["axes_of", "shift"]


def shift(axis: int, rank: int) -> int | None:
    """A row-wise axis in the lifted tensor; None for the row axis itself."""
    axis %= rank
    return axis + 1 if axis else None


def axes_of(inputs: list[Lifted], attributes: Attributes) -> list[int] | None:
    """Axes, an input or (older ops) an attribute."""
    if len(inputs) > 1:
        return [int(axis) for axis in inputs[1].value.reshape(-1)] if isinstance(inputs[1], Const) else None
    axes = attributes.get("axes")
    return [int(axis) for axis in axes] if axes is not None else None
