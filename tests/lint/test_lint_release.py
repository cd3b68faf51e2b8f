"""Releases are compared as (year, month)."""

from __future__ import annotations

import pytest

from bireme.errors import LintError
from bireme.lint.release import ALWAYS, read_release, releases


def test_releases_are_no_decimal_fractions() -> None:
    assert read_release("24.09") < read_release("24.10") < read_release("25.01")
    assert str(read_release("25.01")) == "25.01"


@pytest.mark.parametrize("text", ["24.1", "2.51.0", "r24.10", "24.13", "24.00", "", "24.10-py3", "latest"])
def test_another_form_is_one_error(text: str) -> None:
    with pytest.raises(LintError, match="is no release of Triton"):
        read_release(text)


def test_ranges_hold_their_ends() -> None:
    until, since, both = releases(last="26.07"), releases("25.11"), releases("25.11", "26.03")
    names = ["24.10", "25.10", "25.11", "26.03", "26.07", "26.08"]
    inside = [[name for name in names if read_release(name) in held] for held in (ALWAYS, until, since, both)]
    assert inside == [names, names[:5], names[2:], ["25.11", "26.03"]]
    assert [str(held) for held in (ALWAYS, until, since, both)] == [
        "all",
        "up to 26.07",
        "from 25.11",
        "25.11 to 26.03",
    ]
