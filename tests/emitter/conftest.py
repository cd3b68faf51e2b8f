from __future__ import annotations

from pathlib import Path

import pytest

from bireme.emitter import layout


@pytest.fixture(autouse=True)
def small_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about where files go, not about what the models compute."""
    monkeypatch.setattr(layout, "model_source", lambda part: f"# {part}\n".encode())
    monkeypatch.setattr(layout, "runtime_files", lambda: {"__init__.py": b"", "ops/take.py": b"x = 1\n"})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "models"
