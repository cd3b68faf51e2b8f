"""`bireme doctor`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from bireme.cli_options import AsJson

__all__ = ["doctor"]


def doctor(
    repository: Annotated[
        Path | None,
        typer.Option("--repository", "-r", help="also look at what this model repository needs"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at this host and its environment and say what to do; exit code 10 on errors."""
    from bireme.doctor.checks import CHECKS
    from bireme.doctor.finding import examine
    from bireme.doctor.gather import gather
    from bireme.errors import DoctorError

    findings = examine(CHECKS, gather(repository))
    if as_json:
        print(json.dumps([finding.as_data() for finding in findings], indent=1))
    else:
        from rich.console import Console

        from bireme.doctor.text import as_table, summary

        # Where there is no terminal, 80 columns would fold the table.
        console = Console(width=None if sys.stdout.isatty() else 120)
        console.print(as_table(findings))
        console.print(summary(findings), highlight=False)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(DoctorError.exit_code)
