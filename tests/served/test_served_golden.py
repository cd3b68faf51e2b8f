"""Recorded where TensorFlow is, compared where it is not: the whole path, on the real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from served_helpers import TOLERANCE

from bireme.errors import VerifyError
from bireme.requests import count_candidates
from bireme.server.process import TritonServer
from bireme.spec import read_spec
from bireme.synthetic import edge_counts
from bireme.verify.golden import Golden, read_golden
from bireme.verify.verify import record, verify_golden
from bireme_runtime.plan import Plan

pytestmark = pytest.mark.triton

# As on the GPU host: whoever imports one of these fails.
WITHOUT_BUILD_PACKAGES = (
    "import sys\n"
    "for name in ('tensorflow', 'onnxruntime', 'tf2onnx', 'keras', 'onnx'): sys.modules[name] = None\n"
    "from bireme.cli import main\n"
    "sys.exit(main())\n"
)


@pytest.fixture(scope="module")
def golden(spec: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "obd.npz"
    record(spec, repository, path, count=80)
    return path


@pytest.fixture(scope="module")
def recorded(golden: Path) -> Golden:
    return read_golden(golden)


def test_it_holds_every_edge_and_requests_of_several_users(recorded: Golden, plan: Plan) -> None:
    edges = edge_counts(plan.buckets)
    assert {count_candidates(request) for request in recorded.requests} >= set(edges)
    assert {count_candidates(recorded.requests[group[0]]) for group in recorded.together} == set(edges)
    sizes = {len(group) for group in recorded.together}
    assert {2, 16} <= sizes


def test_the_command_without_tensorflow_compares_with_it(golden: Path, repository: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_BUILD_PACKAGES, "verify", "--json", "--golden", str(golden)]
    done = subprocess.run([*command, "-r", str(repository)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["scores"]
    assert len(results) == 2
    for result in results:
        assert result["max_difference"] <= TOLERANCE
        assert result["together"] > 8
        assert result["requests"] > 80


def test_a_wrong_weight_is_found_without_tensorflow(golden: Path, repository: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(repository, tmp_path / "repository")
    arena = damaged / "obd_preprocess" / "1" / "arena_float32_w16.bin"
    table = np.fromfile(arena, np.float32).reshape(-1, 16)
    table[5] *= -1
    arena.write_bytes(table.tobytes())
    differs = pytest.raises(VerifyError, match="differs from the original model by")
    with TritonServer(damaged, exit_timeout=0) as server, differs:
        verify_golden(golden, repository, {"grpc": server.grpc_url}, 4, TOLERANCE).require()


def test_a_saved_model_that_changed_after_the_build_is_not_recorded(
    spec: Path, repository: Path, tmp_path: Path
) -> None:
    described = read_spec(spec)
    shutil.copytree(described.saved_model, tmp_path / "saved_model")
    variables = tmp_path / "saved_model" / "variables" / "variables.data-00000-of-00001"
    content = bytearray(variables.read_bytes())
    content[100] ^= 1
    variables.write_bytes(content)
    other = tmp_path / "bireme.yaml"
    text = spec.read_text().replace("../../build/obd/saved_model", str(tmp_path / "saved_model"))
    other.write_text(text.replace("../../build/obd/", f"{described.saved_model.parent}/"))
    with pytest.raises(VerifyError, match="is not what the repository was built from"):
        record(other, repository, tmp_path / "g.npz", count=4)
    assert not (tmp_path / "g.npz").exists()
