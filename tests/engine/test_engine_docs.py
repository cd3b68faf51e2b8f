"""docs/engine.md against the code: every option, every field of the passport, every quoted message."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest
import typer

from bireme.cli import app
from bireme_runtime.passport import Passport

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs/engine.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Cells of the first table after a line that starts with this."""
    rows = DOC[DOC.index(f"\n{heading}") :].partition("\n| --- ")[2].splitlines()[1:]
    lines = itertools.takewhile(lambda line: line.startswith("|"), rows)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_option() -> None:
    command = typer.main.get_command(app).commands["engine"]  # type: ignore[attr-defined]
    options = {name for param in command.params for name in param.opts}
    told = {
        name for first, *_ in table("| option") for name in re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", first)
    }
    assert told == options - {"--help"}


def test_every_field_of_the_passport() -> None:
    told = {name for first, *_ in table("| field") for name in re.findall(r"`(\w+)`", first)}
    assert told == {field.name for field in dataclasses.fields(Passport)}


QUOTED = [
    quote
    for heading in ("| message | cause", "| message | what to do")
    for first, *_ in table(heading)
    for quote in re.findall(r"`([^`]+)`", first)
]


def test_there_are_messages() -> None:
    assert len(QUOTED) > 15


@pytest.mark.parametrize("quote", QUOTED)
def test_a_quoted_message_is_one_of_the_codes(quote: str) -> None:
    """The parts between what is filled in are in the sources, whose literals may be split over lines."""
    folders = ["generator/bireme/engine", "backends/python/bireme_runtime"]
    sources = "\n".join(
        path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).glob("*.py")
    )
    joined = re.sub(r'"\s*\n\s*\+?\s*f?"', "", sources)
    joined = re.sub(r"\{PASSPORT\}|\{folder / PASSPORT\}", "passport.json", joined)
    joined = re.sub(r"\{folder / PLAN\}|\{plan\}", "model.plan", joined).replace("{ONNX}", "model.onnx")
    for part in re.split("…|NAME", quote):
        assert part.strip() in joined
