import sys
from pathlib import Path

import pytest

# The example's modules import each other as scripts do, by their bare names.
for _example in ("families", "obd"):
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / _example))


@pytest.fixture(scope="session")
def log():
    """The real sample."""
    from dataset import load

    return load()
