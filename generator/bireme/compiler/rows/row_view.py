"""How a row-wise tensor is seen with its rows in front.

A tensor whose rows are not in front, such as [L, rows, D] or [rows·L, D], is a `View` of a base [rows, …]
that holds the same numbers in the order of the view, the rows pulled to the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bireme.compiler.rows.row_dims import Dim, Rows

__all__ = ["NoViewError", "View"]


class NoViewError(Exception):
    """This use of an op cannot be seen with the rows in front."""


@dataclass(frozen=True)
class View:
    """A row-wise tensor [*before, pre·rows·post, *after] as [rows, *before, pre·post, *after].

    Args:
        base: the tensor with the rows in front; the dimension pre·post is absent where it is 1. A constant
            base [1, …] stands for a tensor that is equal in all rows.
        before: sizes in front of the row axis.
        pre: what the row axis holds outside of the rows.
        post: what it holds inside.
        after: sizes behind the row axis.
    """

    base: str
    before: tuple[int, ...]
    pre: int
    post: int
    after: tuple[int, ...]

    @property
    def axis(self) -> int:
        """The row axis."""
        return len(self.before)

    @property
    def rank(self) -> int:
        """Rank of the row-wise tensor."""
        return len(self.before) + 1 + len(self.after)

    @property
    def plain(self) -> bool:
        """Whether it is its base."""
        return not self.before and self.pre == self.post == 1

    @property
    def middle(self) -> tuple[int, ...]:
        """The base's dimension for what else the row axis holds."""
        return (self.pre * self.post,) if self.pre * self.post != 1 else ()

    @property
    def rest(self) -> tuple[int, ...]:
        """Shape of the base behind the rows."""
        return (*self.before, *self.middle, *self.after)

    @property
    def shape(self) -> list[Dim]:
        """Shape of the row-wise tensor."""
        return [*self.before, Rows(self.pre * self.post), *self.after]

    def base_axis(self, axis: int) -> int:
        """Where a row-wise axis is in the base.

        Raises:
            NoViewError: it is the row axis.
        """
        axis %= self.rank
        if axis == self.axis:
            raise NoViewError
        return axis + 1 if axis < self.axis else axis + len(self.middle)

    def resized(self, base: str, axis: int, sizes: Sequence[int]) -> View:
        """The view in which `sizes` stand in the place of one axis (not the row axis)."""
        axis %= self.rank
        before, after = list(self.before), list(self.after)
        if axis < self.axis:
            before[axis : axis + 1] = sizes
        else:
            after[axis - self.axis - 1 : axis - self.axis] = sizes
        return View(base, tuple(before), self.pre, self.post, tuple(after))

    def on(self, base: str) -> View:
        """The same view of another base."""
        return View(base, self.before, self.pre, self.post, self.after)
