"""`bireme lint`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from bireme.cli_options import AsJson, Repository
from bireme.lint.finding import Finding, Rule

__all__ = ["lint"]


class Format(str, Enum):
    """How findings are printed."""

    text = "text"
    json = "json"
    sarif = "sarif"


def lint(
    repository: Repository = Path("model_repository"),
    form: Annotated[Format, typer.Option("--format", help="how to print findings")] = Format.text,
    as_json: AsJson = False,
    show_rules: Annotated[
        bool, typer.Option("--rules", help="print the rules as a Markdown table, and end")
    ] = False,
    triton: Annotated[
        str | None, typer.Option(help="release, such as 24.10: only what holds for it; default: all known")
    ] = None,
    slo_ms: Annotated[
        float | None,
        typer.Option(min=0.001, help="time that a request may take; timeouts and queues are held to it"),
    ] = None,
    server_flags: Annotated[
        str | None, typer.Option(help="flags that tritonserver will get, as one text: decides what needs one")
    ] = None,
    shm: Annotated[str | None, typer.Option(help="size of /dev/shm there, such as 64m")] = None,
    memory: Annotated[str | None, typer.Option(help="RAM there, such as 16g")] = None,
    variable: Annotated[
        int, typer.Option(min=1, help="size to count for a dimension of -1 in estimates of memory")
    ] = 1,
) -> None:
    """Look for what Triton accepts silently and then ignores, or answers wrongly; exit code 9 on errors."""
    from bireme.errors import LintError
    from bireme.lint.release import read_release
    from bireme.lint.repository import READING, lint_repository
    from bireme.lint.rules import RULES
    from bireme.lint.settings import Settings, read_bytes, split_flags
    from bireme.lint.table import rules_table

    if show_rules:
        print(rules_table((READING, *RULES)))
        return
    settings = Settings(
        triton=read_release(triton) if triton is not None else None,
        slo_ms=slo_ms,
        flags=split_flags(server_flags) if server_flags is not None else None,
        shm_bytes=read_bytes("--shm", shm) if shm is not None else None,
        memory_bytes=read_bytes("--memory", memory) if memory is not None else None,
        variable=variable,
    )
    findings = lint_repository(repository, settings)
    _print(findings, (READING, *RULES), repository, Format.json if as_json else form)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(LintError.exit_code)


def _print(findings: Sequence[Finding], rules: Sequence[Rule], repository: Path, form: Format) -> None:
    from bireme.lint.sarif import sarif

    if form is Format.json:
        print(json.dumps([finding.as_data() for finding in findings], indent=1))
    elif form is Format.sarif:
        print(sarif(findings, rules))
    else:
        for finding in findings:
            line = f" (line {finding.line})" if finding.line is not None else ""
            print(f"{finding.code} {finding.severity}: {finding.where}{line}: {finding.message}")
            print(f"  → {finding.fix}")
        errors = sum(finding.severity == "error" for finding in findings)
        print(f"{repository}: {errors} errors, {len(findings) - errors} warnings")
