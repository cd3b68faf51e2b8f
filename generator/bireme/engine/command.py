"""The verb `bireme engine`."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from bireme.cli_options import AsJson, Repository

__all__ = ["engine"]

_out = Console(width=None if sys.stdout.isatty() else 120)
_err = Console(stderr=True, soft_wrap=True)


class EngineTool(str, Enum):
    """What builds plans."""

    auto = "auto"
    tensorrt = "tensorrt"
    trtexec = "trtexec"


def engine(
    repository: Repository = Path("model_repository"),
    model: Annotated[
        list[str] | None, typer.Option(help="only this GPU network; may be given several times")
    ] = None,
    tool: Annotated[
        EngineTool, typer.Option(help="auto: the Python package tensorrt, else the command trtexec")
    ] = EngineTool.auto,
    trtexec: Annotated[Path | None, typer.Option(help="the command, where it is not on PATH")] = None,
    workspace: Annotated[
        int | None, typer.Option(min=0, help="most scratch memory of a layer, in MB; default: TensorRT's")
    ] = None,
    level: Annotated[
        int | None, typer.Option(min=0, max=5, help="builder optimization level; default: TensorRT's")
    ] = None,
    tf32: Annotated[bool, typer.Option("--tf32", help="let FP32 matrices be multiplied as TF32")] = False,
    timing_cache: Annotated[
        str, typer.Option(help="file that keeps timings between builds, or none; default: in ~/.cache/bireme")
    ] = "default",
    force: Annotated[bool, typer.Option("--force", help="build what is up to date, too")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="print all that TensorRT says")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the TensorRT plans of a repository's GPU networks, on the GPU that will serve them."""
    from bireme.engine.build_engine import build_engines, find_tool
    from bireme.engine.options import Options, with_elapsed
    from bireme.engine.show import as_data, as_table

    cache: Any = timing_cache if timing_cache in ("default", "none") else Path(timing_cache)
    with _err.status("looking for TensorRT") as status:

        def progress(text: str) -> None:
            if verbose:
                _err.print(escape(text), highlight=False)
            status.update(escape(text[:100]))

        outcomes = []
        for outcome in build_engines(
            repository,
            model or (),
            lambda: find_tool(tool.value if trtexec is None else "trtexec", trtexec),
            Options(workspace, level, tf32),
            cache,
            force,
            with_elapsed(progress),
        ):
            outcomes.append(outcome)
            if not as_json:
                _out.print(as_table(outcome))
    if as_json:
        print(json.dumps(as_data(outcomes), indent=1))
