from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bireme.emitter import layout

# The emitter's helpers make small contracts and artifacts.
sys.path.insert(0, str(Path(__file__).parent.parent / "emitter"))


@pytest.fixture(autouse=True)
def small_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the emitted models compute is beside the point here."""
    monkeypatch.setattr(layout, "model_source", lambda part: f"# {part}\n".encode())
    monkeypatch.setattr(layout, "runtime_files", lambda: {"__init__.py": b""})
