"""A GPU repository whose plan does not fit is refused before the server sees it.

GPUs and the TensorRT that is installed are stand-ins: there is neither here. The repositories are the
emitter's, and the plans a few bytes with a passport; tests/gpu/test_gpu_engine.py has a real one.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("engine", "emitter")]

from engine_helpers import H200, gpu_repository

from bireme.engine.network import network_in
from bireme.engine.profile import profile
from bireme.errors import ServerError
from bireme.server import gpu_plans
from bireme.server.gpu_plans import check_plans
from bireme.server.locate import Installation
from bireme.server.process import TritonServer
from bireme.verify.direct import plain_answers
from bireme_runtime import passport as passports
from bireme_runtime.hashes import file_sha256
from bireme_runtime.passport import Gpu, Passport

A10 = Gpu("NVIDIA A10", "8.6", 23028)
PLAN = b"a plan"
TARGETS = ["gpu", "gpu-python"]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One H200; TensorRT 8.6.0 in this Python, 10.3.0 for the C++ backend."""
    monkeypatch.setattr(gpu_plans, "visible_gpus", lambda: [H200])
    monkeypatch.setattr(gpu_plans, "package_version", lambda: "8.6.0")
    monkeypatch.setattr(gpu_plans, "library_version", lambda: "10.3.0")


def built(folder: Path, target: str = "gpu-python") -> Path:
    """A repository with a plan for that machine; its version folder."""
    version = gpu_repository(folder, target) / "shop_dnn" / "1"
    (version / "model.plan").write_bytes(PLAN)
    network = network_in(version.parent)
    assert network is not None
    assert network.needs is not None
    Passport(
        model="shop_dnn",
        plan=passports.described(PLAN),
        onnx={"sha256": file_sha256(version / "model.onnx")},
        tensorrt="8.6.0" if target == "gpu-python" else "10.3.0",
        gpu=H200,
        driver="",
        profile=profile(network.needs),
        users=network.needs.users,
        buckets=tuple(network.needs.buckets),
        precision="obey",
        built_by="tensorrt python",
    ).write(version / "passport.json")
    return version


def environment() -> Mapping[str, str]:
    """The server's: its python3 is the one of this process."""
    return {"PATH": str(Path(sys.executable).parent)}


def check(version: Path, **more: str) -> None:
    check_plans(version.parents[1], {**environment(), **more})


def change(**fields: object) -> Callable[[Path], object]:
    def write(version: Path) -> None:
        dataclasses.replace(passports.read(version), **fields).write(version / "passport.json")  # type: ignore[arg-type]

    return write


def more_buckets(version: Path) -> None:
    path = version.parent / "config.pbtxt"
    text = path.read_text(encoding="utf-8")
    # The C++ backend's are in its graph_spec.
    changed = text.replace('"4,16"', '"4,16,32"').replace("dim: [ 16, 9 ]", "dim: [ 32, 9 ]")
    assert changed != text
    path.write_text(changed, encoding="utf-8")


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda v: (v / "model.plan").unlink(), "model.plan is missing"),
    "truncated": (lambda v: (v / "model.plan").write_bytes(PLAN[:-1]), "is truncated: it has 5 bytes"),
    "no passport": (lambda v: (v / "passport.json").unlink(), "has no passport.json beside it"),
    "no JSON": (lambda v: (v / "passport.json").write_text("{"), "passport.json is not JSON"),
    "JSON too deep": (
        lambda v: (v / "passport.json").write_text("[" * 100_000),
        "passport.json is no passport",
    ),
    "no number": (change(users=float("inf"), buckets=("x",)), "passport.json is no passport: ValueError"),
    "no text": (change(tensorrt=8.6), "is no passport: TypeError: its tensorrt is 8.6, which is no text"),
    "endless": (change(buckets=(float("inf"),)), "passport.json is no passport: OverflowError"),
    "other network": (lambda v: (v / "model.onnx").write_bytes(b"x"), "from another network than"),
    "other TensorRT": (change(tensorrt="8.5.3"), "was built by TensorRT 8.5.3 and cannot be read by"),
    "other GPU": (change(gpu=A10), "was built for NVIDIA A10 (compute capability 8.6); here is NVIDIA H200"),
    "uncovered": (more_buckets, "was not built for users 1, bucket 32, which the config.pbtxt needs"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", DAMAGED)
def test_refused_with_the_remedy(case: str, target: str, tmp_path: Path) -> None:
    version = built(tmp_path / "models", target)
    check(version)
    damage, words = DAMAGED[case]
    damage(version)
    with pytest.raises(ServerError) as caught:
        check(version)
    assert caught.value.where == "shop_dnn"
    assert words in caught.value.message
    remedy = f"build it on the GPU that will serve: bireme engine -r {tmp_path / 'models'} --model shop_dnn"
    assert caught.value.hint == remedy


def test_without_facts_only_the_files_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = built(tmp_path / "models")
    change(gpu=A10, tensorrt="8.5.3")(version)
    monkeypatch.setattr(gpu_plans, "visible_gpus", list)
    monkeypatch.setattr(gpu_plans, "package_version", lambda: None)
    check(version)
    (version / "model.plan").write_bytes(PLAN[:-1])
    with pytest.raises(ServerError, match="is truncated"):
        check(version)


def test_another_python_may_have_another_tensorrt(tmp_path: Path) -> None:
    version = built(tmp_path / "models")
    change(tensorrt="8.5.3")(version)
    check(version, PATH=str(tmp_path))
    with pytest.raises(ServerError, match=r"8\.5\.3"):
        check(version)


def test_every_gpu_that_an_instance_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = built(tmp_path / "models")
    config = version.parent / "config.pbtxt"
    text = config.read_text(encoding="utf-8")
    assert text.count("kind: KIND_GPU") == 1
    monkeypatch.setattr(gpu_plans, "visible_gpus", lambda: [H200, A10])
    with pytest.raises(ServerError, match="here is NVIDIA A10"):
        check(version)
    config.write_text(text.replace("kind: KIND_GPU", "kind: KIND_GPU gpus: [ 0 ]"), encoding="utf-8")
    check(version)
    config.write_text(text.replace("kind: KIND_GPU", "kind: KIND_GPU gpus: [ 0, 1 ]"), encoding="utf-8")
    with pytest.raises(ServerError, match="here is NVIDIA A10"):
        check(version)
    # Which of them the server will see is another matter if it gets its own choice.
    check(version, CUDA_VISIBLE_DEVICES="0")


def test_a_network_that_is_for_no_gpu_needs_no_gpu(tmp_path: Path) -> None:
    version = built(tmp_path / "models")
    config = version.parent / "config.pbtxt"
    config.write_text(config.read_text(encoding="utf-8").replace("KIND_GPU", "KIND_CPU"), encoding="utf-8")
    change(gpu=A10)(version)
    check(version)


def test_what_bireme_did_not_write_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "config.pbtxt").write_text('name: "net"\nplatform: "tensorrt_plan"\n')
    check_plans(tmp_path, {})


def test_the_server_is_not_started(tmp_path: Path) -> None:
    """The binary would leave a trace."""
    version = built(tmp_path / "models")
    (version / "model.plan").write_bytes(PLAN[:-1])
    trace, binary = tmp_path / "started", tmp_path / "tritonserver"
    binary.write_text(f"#!/bin/sh\ntouch {trace}\n")
    binary.chmod(0o755)
    server = TritonServer(tmp_path / "models", installation=Installation("named", binary, {}, ()))
    with pytest.raises(ServerError, match="is truncated"):
        server.start(timeout=5)
    assert not trace.exists()
    assert server.pid is None


@pytest.mark.parametrize("case", ["missing", "other GPU"])
def test_verify_refuses_it_in_the_repository_and_not_in_its_copy(case: str, tmp_path: Path) -> None:
    """The server without graphs starts on a copy, which is gone when the error is read."""
    version = built(tmp_path / "models")
    damage, words = DAMAGED[case]
    damage(version)
    with pytest.raises(ServerError) as caught:
        plain_answers(version.parents[1], [], {}, environment(), lambda *_: None)
    assert words in caught.value.message
    assert f"bireme engine -r {version.parents[1]} --model shop_dnn" in caught.value.hint
