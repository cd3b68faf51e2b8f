"""Releases of Triton, such as 24.10, compared as (year, month)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bireme.errors import LintError

__all__ = ["ALWAYS", "Release", "Releases", "read_release", "releases"]

_FORM = re.compile(r"(\d\d)\.(\d\d)")


@dataclass(frozen=True, order=True)
class Release:
    """A monthly release of NVIDIA's container.

    Args:
        year: of this century, such as 24.
        month: 1 to 12.
    """

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02}"


@dataclass(frozen=True)
class Releases:
    """A range of releases for which a fact holds.

    Args:
        first: the oldest; None: as far back as is known.
        last: the newest; None: up to now.
    """

    first: Release | None = None
    last: Release | None = None

    def __contains__(self, release: Release) -> bool:
        return (self.first is None or self.first <= release) and (self.last is None or release <= self.last)

    def __str__(self) -> str:
        if self.first is None:
            return "all" if self.last is None else f"up to {self.last}"
        return f"from {self.first}" if self.last is None else f"{self.first} to {self.last}"


ALWAYS = Releases()


def read_release(text: str) -> Release:
    """A release as users write it.

    Raises:
        LintError: it is not written as year.month.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None or not 1 <= int(found[2]) <= 12:
        hint = "write the container's year and month, such as 24.10 (tritonserver 2.51 is 24.10)"
        raise LintError(f"--triton {text}", "is no release of Triton", hint)
    return Release(int(found[1]), int(found[2]))


def releases(first: str | None = None, last: str | None = None) -> Releases:
    """A range from the texts of its ends."""
    return Releases(
        read_release(first) if first is not None else None, read_release(last) if last is not None else None
    )
