"""Every rule's clean repository, and the change of it that trips the rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint_repositories import CASES, Case, write

from bireme.lint.finding import Finding
from bireme.lint.repository import lint_repository


def findings(root: Path, case: Case) -> list[Finding]:
    return [finding for finding in lint_repository(root, case.settings) if finding.code == case.code]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_finds_what_is_wrong_and_nothing_before(tmp_path: Path, case: Case) -> None:
    write(tmp_path, case.good)
    assert findings(tmp_path, case) == []
    write(tmp_path, case.bad)
    for name, text in case.bad.items():
        if not text:
            (tmp_path / name).unlink()
            folder = (tmp_path / name).parent
            while not list(folder.iterdir()):
                folder.rmdir()
                folder = folder.parent
    found = findings(tmp_path, case)
    assert found
    for finding in found:
        assert (finding.message, finding.fix) != ("", "")
        assert (tmp_path / finding.file).is_file()
