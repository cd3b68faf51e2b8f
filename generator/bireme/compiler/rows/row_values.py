"""What a row-wise tensor can become while `user_once` walks the graph.

A row-wise tensor [rows, *rest] becomes [users, candidates, *rest]; one that depends on user features alone is
[users, 1, *rest] and broadcasts. Most values here are not written yet: a concat that a dense layer takes
apart, a sum whose user part stays small, a target that is compared with every entry of a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from bireme_runtime.plan import Side

__all__ = [
    "Array",
    "Const",
    "Lifted",
    "Part",
    "Rest",
    "Segments",
    "Slice",
    "Stretched",
    "Sum",
    "Tensor",
    "Term",
    "broadcast",
    "merge",
]

Array = np.ndarray[Any, Any]
Rest = tuple[int, ...]


@dataclass(frozen=True)
class Const:
    """A weight."""

    value: Array


@dataclass(frozen=True)
class Tensor:
    """A written tensor."""

    name: str
    side: Side
    rest: Rest


@dataclass(frozen=True)
class Slice:
    """Some of a tensor's elements, neighbours in memory, in any shape; not written yet, neighbours may merge.

    Args:
        source: the tensor.
        start: how many of its elements, per user and candidate, lie before these.
        rest: the shape that they are read in.
    """

    source: Tensor
    start: int
    rest: Rest

    @property
    def side(self) -> Side:
        """Its tensor's."""
        return self.source.side


@dataclass(frozen=True)
class Stretched:
    """A tensor read as if repeated along dimensions where it has length 1.

    Args:
        tensor: as it is; 1 in some dimensions.
        rest: the shape that it stands for.
    """

    tensor: Tensor
    rest: Rest

    @property
    def side(self) -> Side:
        """Its tensor's."""
        return self.tensor.side


@dataclass(frozen=True)
class Term:
    """`scale · user · item`, elementwise; a missing factor is 1, one of them is there.

    Each factor may have length 1 in dimensions where the sum does not.
    """

    scale: float
    user: Tensor | None = None
    item: Tensor | None = None

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """The factors that are there."""
        return tuple(factor for factor in (self.user, self.item) if factor is not None)


@dataclass(frozen=True)
class Sum:
    """Terms of both sides, not multiplied and not added yet: what follows may be cheaper on one of them."""

    terms: tuple[Term, ...]
    rest: Rest

    @property
    def side(self) -> Side:
        """That of the whole sum."""
        return "item" if any(term.item is not None for term in self.terms) else "user"


Part = Tensor | Slice | Stretched | Sum


@dataclass(frozen=True)
class Segments:
    """A concat that is never written if what reads it can take it apart.

    Args:
        parts: what is put together.
        axis: along which dimension of their `rest`.
    """

    parts: tuple[Part, ...]
    axis: int

    @property
    def rest(self) -> Rest:
        """Shape of the concat behind users and candidates."""
        first = self.parts[0].rest
        return (
            *first[: self.axis],
            sum(part.rest[self.axis] for part in self.parts),
            *first[self.axis + 1 :],
        )

    @property
    def mixed(self) -> bool:
        """Whether it holds parts of both sides."""
        return len({part.side for part in self.parts}) == 2

    @property
    def side(self) -> Side:
        """That of the whole concat."""
        return "item" if any(part.side == "item" for part in self.parts) else "user"

    @property
    def contiguous(self) -> bool:
        """Whether each part's elements are neighbours in the whole."""
        return prod(self.rest[: self.axis]) == 1

    @property
    def starts(self) -> list[int]:
        """Where each part begins along the axis, and where the last one ends."""
        return [0, *np.cumsum([part.rest[self.axis] for part in self.parts]).tolist()]


Lifted = Const | Tensor | Slice | Stretched | Sum | Segments


def merge(parts: Sequence[Part], axis: int) -> list[Part]:
    """Neighbouring elements of one tensor become one part.

    Args:
        parts: parts of a contiguous concat.
        axis: its axis.
    """
    result: list[Part] = []
    for part in parts:
        last = result[-1] if result else None
        if (
            isinstance(part, Slice)
            and isinstance(last, Slice)
            and last.source == part.source
            and last.start + prod(last.rest) == part.start
        ):
            rest = (*last.rest[:axis], last.rest[axis] + part.rest[axis], *last.rest[axis + 1 :])
            result[-1] = Slice(part.source, last.start, rest)
        else:
            result.append(part)
    return result


def broadcast(*rests: Rest) -> Rest:
    """The shape that these shapes broadcast to.

    Raises:
        ValueError: they do not.
    """
    return tuple(int(size) for size in np.broadcast_shapes(*rests))
