"""The example model, built once and served once for all tests of this folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import text_format
from served_helpers import Original, Tensors
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.build import build
from bireme.requests import Request, to_tensors
from bireme.server.process import TritonServer
from bireme.spec import read_spec
from bireme.verify.verify import read_vocabularies
from bireme_runtime.plan import Plan

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spec() -> Path:
    """The example's build spec; its SavedModel is trained if `make` has not done so."""
    path = ROOT / "examples" / "obd" / "bireme.yaml"
    if not (read_spec(path).saved_model / "saved_model.pb").exists():
        train = [sys.executable, str(ROOT / "examples/obd/train.py"), "--out", str(ROOT / "build/obd")]
        subprocess.run(train, check=True, timeout=300)
    return path


@pytest.fixture(scope="session")
def repository(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emitted model repository. Copy it to change it."""
    folder = tmp_path_factory.mktemp("repository")
    build(spec, folder)
    return folder


@pytest.fixture(scope="session")
def two_instances(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with two preprocess processes, whatever the emitter thinks best."""
    folder = shutil.copytree(repository, tmp_path_factory.mktemp("two_instances") / "repository")
    path = folder / "obd_preprocess" / "config.pbtxt"
    config = text_format.Parse(path.read_text(), ModelConfig())
    config.instance_group[0].count = 2
    path.write_text(text_format.MessageToString(config))
    return folder


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """The server that all tests share: leave it as it was."""
    log = tmp_path_factory.mktemp("served") / "server.log"
    with TritonServer(repository, log=log, exit_timeout=0) as server:
        yield server


@pytest.fixture(scope="session")
def plan(repository: Path) -> Plan:
    return Plan.read(repository / "obd_preprocess" / "1" / "plan.json")


@pytest.fixture(scope="session")
def original(spec: Path, plan: Plan) -> Original:
    """The SavedModel that was built from."""
    return Original(spec, plan.features)


@pytest.fixture(scope="session")
def words(plan: Plan, repository: Path) -> dict[str, list[bytes]]:
    """Vocabulary file → its keys."""
    return read_vocabularies(plan, repository / "obd_preprocess" / "1")


@pytest.fixture(scope="session")
def example(repository: Path) -> Request:
    """The emitted example request: 1 user, 80 candidates."""
    request: Request = json.loads((repository / "obd" / "example_request.json").read_text())
    return request


@pytest.fixture
def tensors(example: Request, plan: Plan) -> Tensors:
    """The example request as tensors, for the test to change."""
    return to_tensors(plan.features, example)
