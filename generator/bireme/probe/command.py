"""`bireme probe`."""

from __future__ import annotations

import sys
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bireme.cli_options import Repository

__all__ = ["probe"]


class _ProtocolName(str, Enum):
    http = "http"
    grpc = "grpc"


def probe(
    repository: Repository = Path("model_repository"),
    model: Annotated[str, typer.Option(help="which ensemble; default: all of the repository")] = "",
    url: Annotated[str, typer.Option(help="host:port; default: 127.0.0.1 and Triton's port")] = "",
    protocol: Annotated[_ProtocolName, typer.Option(help="http starts faster")] = _ProtocolName.http,
    request: Annotated[
        Path | None, typer.Option(help="a request (JSON) instead of the example of the repository")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="seconds for one probe of one ensemble")] = 1.0,
    wait: Annotated[float, typer.Option(min=0.0, help="seconds to try again until ready")] = 0.0,
) -> None:
    """Ask the served ensemble for scores: exit code 0 if they are good, else one line that says why not."""
    from bireme.errors import BiremeError
    from bireme.probe.probe import probe as run
    from bireme.probe.probe import until_ready
    from bireme.probe.questions import questions

    url = url or ("127.0.0.1:8000" if protocol is _ProtocolName.http else "127.0.0.1:8001")
    try:
        for question in questions(repository, model, request):
            answer = until_ready(partial(run, url, protocol.value, question, timeout), wait)
            count = max(map(len, answer.scores.values()), default=0)
            print(f"ready: {question.model} scored {count} candidates in {answer.seconds * 1000:.1f} ms")
    except BiremeError as error:
        print(f"not ready: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
