"""`bireme lint`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from bireme.cli_options import AsJson, Repository

__all__ = ["lint"]


def lint(repository: Repository = Path("model_repository"), as_json: AsJson = False) -> None:
    """Look for what Triton accepts silently and then ignores, or answers wrongly; exit code 9 on errors."""
    from bireme.errors import LintError
    from bireme.lint.repository import lint_repository

    findings = lint_repository(repository)
    errors = sum(finding.severity == "error" for finding in findings)
    if as_json:
        print(json.dumps([finding.as_data() for finding in findings], indent=1))
    else:
        for finding in findings:
            print(f"{finding.code} {finding.severity}: {finding.where}: {finding.message}\n  → {finding.fix}")
        print(f"{repository}: {errors} errors, {len(findings) - errors} warnings")
    if errors:
        raise typer.Exit(LintError.exit_code)
