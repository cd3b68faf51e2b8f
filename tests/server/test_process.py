"""A real tritonserver started, watched and stopped; nothing is left behind, whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from server_repositories import python_model, shop
from tritonclient import grpc

from bireme.errors import ServerError
from bireme.server import process
from bireme.server.locate import Installation, locate
from bireme.server.ports import Ports
from bireme.server.process import TritonServer
from bireme.server.stubs import live_stubs

pytestmark = pytest.mark.triton


@pytest.fixture(autouse=True)
def _nothing_left(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("logs")))
    others = _traces()  # a server that other tests share may be running
    yield
    assert _traces() <= others


def _traces() -> set[str]:
    """Model processes and shared memory of servers that this process started."""
    prefix = f"bireme_{os.getpid()}_"
    return {str(pid) for pid in live_stubs(prefix)} | {str(p) for p in Path("/dev/shm").glob(f"{prefix}*")}


def _ask(server: TritonServer, price: float, model: str = "shop") -> np.ndarray:
    arrays = {
        "item_id": np.array([[b"a", b"b"]], np.object_),
        "price": np.array([[1.0, price]], np.float32),
        "age": np.array([[30.0]], np.float32),
    }
    inputs = []
    for name, array in arrays.items():
        tensor = grpc.InferInput(name, list(array.shape), "BYTES" if array.dtype == object else "FP32")
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    with grpc.InferenceServerClient(server.grpc_url) as client:
        return client.infer(model, inputs, client_timeout=20).as_numpy("score")


def test_ready_means_ready_and_stop_frees_everything(tmp_path: Path) -> None:
    server = TritonServer(shop(tmp_path), exit_timeout=1)
    with server:
        assert _ask(server, 3.0).tolist() == [[2.0, 6.0]]
        assert _ask(server, 0.0, "shop_dnn").tolist() == [[2.0, 0.0]]
        assert server.pid is not None
        server.check()
        assert list(live_stubs(server._prefix).values()) == ["shop_dnn_0_0"]
        log, ports = server.log, server.ports
        assert log is not None
        assert "successfully loaded 'shop'" in log.read_text()
    assert server.pid is None
    assert not log.exists()  # a temporary one that no error has pointed to
    assert ports is not None
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", ports.http))
    server.stop()  # harmless


class Asking:
    """A request that sleeps inside the model for half a minute, sent from a thread."""

    def __init__(self, server: TritonServer) -> None:
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(server,))
        self._thread.start()
        time.sleep(0.5)

    def _run(self, server: TritonServer) -> None:
        try:
            _ask(server, -30.0)
        except grpc.InferenceServerException as error:
            self.failures.append(str(error))

    def failure(self) -> str:
        """What the client was told; it must be told soon."""
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.failures[0]


def test_a_stub_killed_mid_request_is_noticed_though_triton_says_ready(tmp_path: Path) -> None:
    with TritonServer(shop(tmp_path), exit_timeout=0) as server:
        (pid,) = live_stubs(server._prefix)
        asking = Asking(server)
        os.kill(pid, signal.SIGKILL)
        assert "Stub process 'shop_dnn_0_0' is not healthy" in asking.failure()
        assert server._answers("/v2/health/ready")
        with pytest.raises(ServerError, match=r"Python process shop_dnn_0_0: died.*restart the server"):
            server.check()


def test_a_server_killed_mid_request_is_noticed_and_cleaned_up_after(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with TritonServer(shop(tmp_path / "repository"), log=log) as server:
        asking = Asking(server)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        assert "UNAVAILABLE" in asking.failure()
        server._running().wait(5)
        with pytest.raises(ServerError, match=r"was ended by SIGKILL.*server\.log"):
            server.check()
    assert log.exists()


def test_a_model_that_fails_to_load_fails_the_start_with_its_reason(tmp_path: Path) -> None:
    repository = shop(tmp_path / "repository")
    source = 'class TritonPythonModel:\n    def initialize(self, args):\n        open("/missing/arena.bin")\n'
    (repository / "shop_dnn" / "1" / "model.py").write_text(source)
    server = TritonServer(repository, log=tmp_path / "log")
    with pytest.raises(ServerError, match=r"model shop_dnn: .*No such file.*/missing/arena\.bin") as caught:
        server.start()
    assert "build the repository again" in caught.value.hint
    assert server.pid is None


def test_a_stub_that_cannot_start_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton would wait for ever for a stub that dies before it reports in."""
    python = tmp_path / "backends" / "python"
    python.mkdir(parents=True)
    found = locate()
    flags = dict(flag.split("=", 1) for flag in found.flags)
    for part in (Path(flags["--backend-directory"]) / "python").iterdir():
        if part.name != "triton_python_backend_stub":
            (python / part.name).symlink_to(part)
    stub = python / "triton_python_backend_stub"
    stub.write_text("#!/bin/sh\necho 'stub: error while loading shared libraries: libx.so' >&2\nexit 127\n")
    stub.chmod(0o755)
    broken = Installation(
        "named", found.command, found.environment, (f"--backend-directory={tmp_path}/backends",)
    )
    monkeypatch.setattr("bireme.server.process._DEAD_STUB_GRACE", 0.5)
    repository = tmp_path / "repository"
    python_model(repository)
    begin = time.monotonic()
    with pytest.raises(ServerError, match="error while loading shared libraries: libx"):
        TritonServer(repository, installation=broken).start(timeout=60)
    assert time.monotonic() - begin < 20


def test_time_out_says_so(tmp_path: Path) -> None:
    source = (
        "import time\nclass TritonPythonModel:\n    def initialize(self, args):\n        time.sleep(60)\n"
    )
    python_model(tmp_path, source=source + "    def execute(self, requests):\n        return []\n")
    with pytest.raises(ServerError, match=r"is not ready after 1 s.*allow more time"):
        TritonServer(tmp_path).start(timeout=1)


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path, ports: Ports) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", ports.grpc))
        listener.listen()
        with pytest.raises(ServerError, match=f"port {ports.grpc}"):
            TritonServer(shop(tmp_path), ports=ports).start()


def test_wrong_flags_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="unrecognized option '--nosuchflag"):
        TritonServer(shop(tmp_path), flags=["--nosuchflag=1"]).start()


def test_a_python_that_forgets_to_stop_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from bireme.server.process import TritonServer\n"
        f"s = TritonServer(Path({str(shop(tmp_path))!r}), exit_timeout=0)\n"
        "s.start(); print(os.getpid(), s.pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    parent, pid = done.stdout.split()
    assert not Path(f"/proc/{pid}").exists()
    assert list(Path("/dev/shm").glob(f"bireme_{parent}_*")) == []


def test_the_next_server_removes_what_killed_ones_left(tmp_path: Path) -> None:
    """Everybody is killed at once, who would have cleaned up too."""
    script = (
        "import sys, time; from pathlib import Path; from bireme.server.process import TritonServer\n"
        f"s = TritonServer(Path({str(shop(tmp_path))!r}), exit_timeout=0)\n"
        "s.start(); print(s._prefix, s.pid, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    prefix, pid = parent.stdout.readline().split()
    stubs = live_stubs(prefix)
    assert stubs
    for number in (parent.pid, int(pid), *stubs):
        os.kill(number, signal.SIGKILL)
    parent.communicate(timeout=10)
    deadline = time.monotonic() + 10
    while live_stubs(prefix) or Path(f"/proc/{pid}/exe").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(Path("/dev/shm").glob(f"{prefix}*")), "Triton cleans up by itself: clear_stale is not needed"
    with TritonServer(shop(tmp_path / "next"), exit_timeout=0):
        assert not list(Path("/dev/shm").glob(f"{prefix}*"))


def test_another_servers_readiness_is_not_taken_for_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TritonServer(shop(tmp_path), exit_timeout=0) as first:
        monkeypatch.setattr(process, "choose", lambda ports, _: ports)  # the race: both found them free
        second = TritonServer(first.repository, ports=first.ports, exit_timeout=0)
        with pytest.raises(ServerError, match="in use"):
            second.start()
        first.check()
