"""The one small plan that tests/gpu builds."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import tiny_network
from gpu_engine_helpers import Made, engine


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A repository whose network has been built; nobody changes it."""
    folder = tmp_path_factory.mktemp("engine")
    tiny_network.write_repository(folder / "models", tiny_network.tiny())
    cache = folder / "timings"
    begun = time.monotonic()
    outcome = engine(folder / "models", cache)
    print(f"built in {time.monotonic() - begun:.1f} s: {outcome.report}")
    return Made(folder / "models", outcome, cache)
