"""Whatever starts a tritonserver loads one model after another: `--model-load-thread-count=1`.

Loaded in parallel, TensorRT models were seen without their graphs, or with graphs that answer wrongly.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bireme.howto import howto
from bireme.spec import Target

ROOT = Path(__file__).parent.parent
FLAG = "--model-load-thread-count=1"
#: The wrapper that bireme installs adds the flag by itself, and so does every server that bireme starts
#: (tests/server/test_locate.py).
WRAPPER = re.compile(r"(\.venv/bin|\{bin\})/tritonserver$")
START = re.compile(r"(?P<command>[\w./{}$-]*\btritonserver)(?=\s+--(?!help)[a-z])")
#: Where start commands may be written; tests have their own.
PLACES = (
    "README.md",
    "Makefile",
    "docs",
    "generator",
    "backends",
    "perf",
    "scripts",
    "examples",
    "model_repository",
    "k8s",
)
SUFFIXES = {".md", ".py", ".sh", ".yaml", ".yml", ".j2", ".txt", ".json", ""}


def sources() -> list[Path]:
    found = [ROOT / place for place in PLACES]
    files = [path for place in found for path in (place.rglob("*") if place.is_dir() else [place])]
    generated = ("results", "__pycache__")
    return [
        path
        for path in files
        if path.is_file()
        and path.suffix in SUFFIXES
        and not set(generated) & set(path.parts)
        and (path.parent != ROOT / "model_repository" or path.name == "README.md")
        and (ROOT / "model_repository") not in path.parent.parents
    ]


def commands(text: str) -> list[tuple[str, str]]:
    """(command, its line with continuations) of every call of tritonserver with flags."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [(match["command"], line) for line in joined.splitlines() for match in START.finditer(line)]


def bare(text: str) -> list[str]:
    """Start commands that neither have the flag nor call the wrapper."""
    return [
        line.strip() for command, line in commands(text) if FLAG not in line and not WRAPPER.search(command)
    ]


def test_every_start_command_that_is_written_anywhere_has_the_flag() -> None:
    seen = 0
    for path in sources():
        text = path.read_text(encoding="utf-8", errors="replace")
        seen += len(commands(text))
        assert bare(text) == [], path
    assert seen >= 4  # README, howto, model_repository/README, …


@pytest.mark.parametrize("target", ["cpu", "gpu", "gpu-python"])
def test_every_command_that_a_build_prints_has_it(target: Target) -> None:
    text = howto("obd", Path("model_repository"), target, Path(".venv/bin"))
    assert commands(text)
    assert bare(text) == []
    assert FLAG in text


def test_the_search_finds_what_it_should() -> None:
    """What the tests above rest on."""
    assert bare("docker run IMAGE \\\n    tritonserver --model-repository=/models") != []
    assert bare(f"docker run IMAGE \\\n    tritonserver --model-repository=/models {FLAG}") == []
    assert bare(".venv/bin/tritonserver --model-repository=x") == []
    assert bare("/opt/tritonserver/bin/tritonserver --http-port=1") != []
