"""Result files: all or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["write_figure", "write_json"]


def write_json(path: Path, value: Any) -> None:
    """Write JSON values, readable in a diff."""
    temporary = _beside(path)
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(path)


def write_figure(path: Path, figure: Any) -> None:
    """Write a matplotlib figure as PNG."""
    temporary = _beside(path)
    figure.savefig(temporary, format="png", dpi=150)
    temporary.replace(path)


def _beside(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.partial")
