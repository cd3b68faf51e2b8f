"""`verify --golden` on a prepared repository, for real: no stand-in, no TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bireme.server.mps import mps_daemon
from bireme.verify.text import as_text
from bireme.verify.verify import verify_golden

pytestmark = pytest.mark.gpu

REPOSITORY, GOLDEN = "BIREME_GPU_REPOSITORY", "BIREME_GPU_GOLDEN"


def test_scores_sequences_and_launches(capsys: pytest.CaptureFixture[str]) -> None:
    missing = [name for name in (REPOSITORY, GOLDEN) if not os.environ.get(name)]
    if missing:
        pytest.skip(f"no prepared repository: {', '.join(missing)} not set")
    found = verify_golden(Path(os.environ[GOLDEN]), Path(os.environ[REPOSITORY]), {}, clients=8)
    with capsys.disabled():
        print(f"\n{as_text(found, 8)}")
    found.require()
    assert found.networks
    for network in found.networks:
        assert sum(network.evidence.launches.values()) > 0 or network.evidence.unplaced[0] > 0
        assert network.ordered.repeated > 0


def test_the_mps_daemon_comes_and_goes() -> None:
    with mps_daemon() as variables:
        pipes = Path(variables["CUDA_MPS_PIPE_DIRECTORY"])
        assert (pipes / "nvidia-cuda-mps-control.pid").exists()
    assert not pipes.parent.exists()
