"""A few families through a real tritonserver: ids, tables with OOV buckets, sparse lookups, attention."""

import subprocess
import sys
from pathlib import Path

import pytest

from bireme.build import build
from bireme.verify.verify import verify

SCRIPT = Path(__file__).parents[2] / "examples" / "families" / "families.py"
SERVED = ("keras_DeepFM_ids", "keras_AutoInt", "tf_lookup_tables", "tf_sparse_lookup", "tf_ragged_inputs")


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    out = tmp_path_factory.mktemp("families")
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--jobs", "2", "--only", *SERVED]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.parametrize("name", SERVED)
def test_served_scores_are_the_saved_models(subjects, tmp_path, name):
    spec = subjects / name / "bireme.yaml"
    build(spec, tmp_path)
    for result in verify(spec, tmp_path, {}, count=40, clients=4, tolerance=1e-5).require().parity:
        assert result.requests == 40
