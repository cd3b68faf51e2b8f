"""`verify` on a gpu-python repository: clean where graphs answer rightly, and not fooled where they do not.

There is no GPU here: KIND_GPU becomes KIND_CPU, and CUDA and TensorRT are the stand-ins of
`tests/runtime/gpu_stand_ins.py`, which execute the ONNX file with ONNX Runtime. The server, the repository
and everything that `verify` does are real; `tests/gpu` does the same on a GPU.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bireme.build import build
from bireme.errors import VerifyError
from bireme.verify.gpu_network import gpu_networks
from bireme.verify.result import Verified
from bireme.verify.text import as_text
from bireme.verify.verify import record, verify_golden
from bireme_runtime.cudart import VARIABLE

sys.path.append(str(Path(__file__).parents[1] / "runtime"))

import gpu_stand_ins

pytestmark = pytest.mark.triton

LANES = "obd_dnn/1/bireme_runtime/lanes.py"


@pytest.fixture(scope="module")
def gpu_spec(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with two buckets and four users: few graphs, so that the stand-in is quick."""
    path = tmp_path_factory.mktemp("spec") / "bireme.yaml"
    text = spec.read_text().replace("../../build", str(spec.parents[2] / "build"))
    text = text.replace("buckets: [20, 80, 160, 512]", "buckets: [20, 80]")
    path.write_text(text.replace("max_users: 16", "max_users: 4\ndnn_instances: 1"))
    return path


@pytest.fixture(scope="module")
def gpu_repository(gpu_spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "repository"
    build(gpu_spec, folder, "gpu-python")
    (network,) = gpu_networks(folder, ["obd_dnn"], [20, 80])
    version = folder / "obd_dnn" / "1"
    shutil.copytree(gpu_stand_ins.FOLDER / "tensorrt", version / "tensorrt")
    onnx = gpu_stand_ins.onnx_text(version / "model.onnx")
    widths = {tensor.name: tensor.dims[-1] for tensor in network.inputs}
    dtype = network.inputs[0].dtype.name
    plan = gpu_stand_ins.make_plan(4, [20, 80], widths, ["click"], dtype, onnx=onnx)
    gpu_stand_ins.write_plan(version, plan, 4, [20, 80], "obd_dnn")
    rewrite(folder, "obd_dnn/config.pbtxt", lambda text: text.replace("KIND_GPU", "KIND_CPU"))
    return folder


@pytest.fixture(scope="module")
def gpu_golden(gpu_spec: Path, gpu_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "obd.npz"
    record(gpu_spec, gpu_repository, path, count=60)
    return path


@pytest.fixture(scope="module")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(gpu_stand_ins.compile_cudart(tmp_path_factory.mktemp("cudart")))


def rewrite(repository: Path, name: str, change: Callable[[str], str]) -> None:
    """Change a file of a repository, and what its manifest says of it."""
    path = repository / name
    before = path.read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    path.write_text(after, encoding="utf-8")
    manifest_path = repository / "obd" / "bireme.json"
    manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
    manifest["files"][name] = hashlib.sha256(after.encode()).hexdigest()
    manifest["bytes"][name] = len(after.encode())
    manifest_path.write_text(json.dumps(manifest), encoding="utf-8")


def found_in(golden: Path, repository: Path, cudart: str) -> Verified:
    return verify_golden(golden, repository, {}, 8, environment={VARIABLE: cudart})


def test_right_graphs_pass_and_are_counted(gpu_golden: Path, gpu_repository: Path, cudart: str) -> None:
    found = found_in(gpu_golden, gpu_repository, cudart).require()
    (network,) = found.networks
    assert network.evidence.captures == {"obd_dnn_0_0": 6}
    assert set(network.evidence.launches) == {(users, bucket) for users in (1, 2, 4) for bucket in (20, 80)}
    assert not network.evidence.plain
    assert network.ordered.compared == sum(network.ordered.orders.values())
    assert network.ordered.repeated > 20
    assert found.ordered is not None
    assert found.ordered.repeated > 20
    text = as_text(found, 8)
    assert re.search(r"4 x 80 +\d+ +0\n", text)
    assert "served scores equal the original model's" in text


def test_a_graph_that_gives_stale_scores_is_caught(
    gpu_golden: Path, gpu_repository: Path, cudart: str, tmp_path: Path
) -> None:
    """Once warm, a small shape after a large one returns what lies in the output buffer."""
    damaged = shutil.copytree(gpu_repository, tmp_path / "repository")
    launch = "self._cuda.launch(slot.graph, self._stream)"
    stale = (
        "shape = slot.layout.shape; self.count = getattr(self, 'count', 0) + 1\n"
        "            if self.count < 40 or shape.bucket != 20 or self.last != 80:\n"
        f"                {launch}\n"
        "            self.last = shape.bucket"
    )
    rewrite(damaged, LANES, lambda text: text.replace(launch, stale))
    found = found_in(gpu_golden, damaged, cudart)
    assert any("another answer than the first time" in text for text in found.networks[0].ordered.failures)
    assert any("in sequences of shapes are wrong" in failure.message for failure in found.failures)
    assert found.networks[0].evidence.failures == []  # the log shows nothing of it
    with pytest.raises(VerifyError):
        found.require()
    assert "FAILED obd" in as_text(found, 8)
    for failure in found.failures:
        if "log: " in failure.hint:
            shutil.rmtree(Path(failure.hint.rpartition("log: ")[2]).parent, ignore_errors=True)


def test_a_server_that_is_ready_without_graphs_is_caught(
    gpu_golden: Path, gpu_repository: Path, cudart: str, tmp_path: Path
) -> None:
    """All scores are right; only the log tells."""
    damaged = shutil.copytree(gpu_repository, tmp_path / "repository")
    place, off = (
        "obd_dnn/1/bireme_runtime/gpu_loading.py",
        'graphs = [] if _environment("BIREME_GRAPHS") == "off"',
    )
    rewrite(damaged, place, lambda text: text.replace(off, "graphs = [] if True"))
    found = found_in(gpu_golden, damaged, cudart)
    assert all(parity.max_difference <= parity.tolerances["click"].value for parity in found.parity)
    (network,) = found.networks
    assert network.ordered.failures == []
    said = "; ".join(network.evidence.failures)
    assert "0 of 1 instances have captured CUDA Graphs" in said
    assert "not one CUDA Graph was launched" in said
    log = Path(found.failures[0].hint.rpartition("log: ")[2])
    assert "plain execution" in log.read_text()
    shutil.rmtree(log.parent)
