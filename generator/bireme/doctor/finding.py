"""What a check is, and what it finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from bireme.doctor.facts import Facts

__all__ = ["SEVERITIES", "Check", "Finding", "Found", "Severity", "examine", "ok"]

Severity = Literal["error", "warning", "note", "ok"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note", "ok")
"""The worst first."""


@dataclass(frozen=True)
class Found:
    """What a check yields.

    Args:
        severity: error: serving fails or answers wrongly. warning: it may fail, or costs much. note: it could
            be better, or is not needed by everyone. ok: nothing to do.
        found: what is there, in one sentence.
        why: why it matters; empty for ok.
        remedy: what to do; empty for ok.
    """

    severity: Severity
    found: str
    why: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Finding:
    """A `Found` with the check that it comes from: its code, such as "D06", and what it looks at."""

    code: str
    about: str
    severity: Severity
    found: str
    why: str
    remedy: str

    def as_data(self) -> dict[str, str]:
        """As JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        code: its short name; never used again for something else.
        about: what it looks at, as a heading.
        look: from facts to what is found; pure, and never silent.
    """

    code: str
    about: str
    look: Callable[[Facts], Iterator[Found]]

    def findings(self, facts: Facts) -> Iterator[Finding]:
        """What this check finds."""
        for found in self.look(facts):
            yield Finding(self.code, self.about, found.severity, found.found, found.why, found.remedy)


def ok(found: str) -> Found:
    """Nothing to do."""
    return Found("ok", found)


def examine(checks: Iterable[Check], facts: Facts) -> list[Finding]:
    """What all checks find, the worst first, else in the order of the checks."""
    findings = [finding for check in checks for finding in check.findings(facts)]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
