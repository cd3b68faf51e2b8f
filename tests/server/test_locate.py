"""Which tritonserver is used, and how it is called."""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from server_repositories import shop

from bireme.errors import ServerError
from bireme.server import locate as module
from bireme.server.locate import VARIABLE, Installation, locate
from bireme.server.ports import Ports

WRAPPER = Path(sys.executable).with_name("tritonserver")


@pytest.fixture(autouse=True)
def _no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONTAINER", Path("/nonexistent/tritonserver"))


def _binary(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tritonserver"
    file.write_bytes(b"\x7fELF")
    file.chmod(0o755)
    return file


def test_the_system_server_comes_before_the_embedded_one(tmp_path: Path) -> None:
    binary = _binary(tmp_path / "bin")
    path = os.pathsep.join(["/nowhere", str(WRAPPER.parent), str(tmp_path / "bin"), "/usr/bin"])
    found = locate(environ={"PATH": path})
    assert (found.kind, found.command) == ("system", binary)
    # Its Python backend must find the system's Python, not this environment's.
    assert found.environment["PATH"].split(os.pathsep) == ["/nowhere", str(tmp_path / "bin"), "/usr/bin"]


def test_the_container_server_needs_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = _binary(tmp_path)
    monkeypatch.setattr(module, "CONTAINER", binary)
    assert locate(environ={}).command == binary


def test_our_own_wrapper_is_not_taken_for_a_server() -> None:
    found = locate(environ={"PATH": str(WRAPPER.parent)})
    assert found.kind == "embedded"
    assert found.command.name == "tritonserver"
    assert found.command != WRAPPER


def test_embedded_environment(tmp_path: Path) -> None:
    found = locate(environ={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(tmp_path)})
    folders = found.environment["PATH"].split(os.pathsep)
    assert folders[0] == str(Path(sys.executable).parent)  # the stub's python3
    assert folders[1:] == ["/usr/bin", "/bin"]
    assert found.environment["LD_LIBRARY_PATH"].split(os.pathsep)[-1] == str(tmp_path)
    flags = dict(flag.split("=", 1) for flag in found.flags)
    assert (Path(flags["--backend-directory"]) / "python" / "triton_python_backend_stub").exists()
    assert flags["--model-load-thread-count"] == "1"


def test_a_named_server_wins(tmp_path: Path) -> None:
    system, named = _binary(tmp_path / "system"), _binary(tmp_path / "named")
    environ = {"PATH": str(system.parent), VARIABLE: str(named)}
    assert locate(environ=environ).command == named
    # One model after another, whichever server it is.
    for found in (locate(environ=environ), locate(environ={"PATH": str(system.parent)})):
        assert "--model-load-thread-count=1" in found.flags
    assert locate(named=system, environ=environ).command == system


@pytest.mark.parametrize("kind", ["missing", "not executable", "wrapper"])
def test_a_wrong_named_server_is_refused(kind: str, tmp_path: Path) -> None:
    named = tmp_path / "x" if kind == "missing" else _binary(tmp_path)
    if kind == "not executable":
        named.chmod(0o644)
    if kind == "wrapper":
        named = WRAPPER
    with pytest.raises(ServerError, match=r"not an executable|own wrapper") as caught:
        locate(environ={"PATH": "", VARIABLE: str(named)})
    assert caught.value.where == str(named)
    assert VARIABLE in caught.value.hint


def test_default_flags_give_way_to_the_users() -> None:
    found = Installation("named", Path("t"), {}, ("--backend-directory=/b", "--model-load-thread-count=1"))
    assert found.arguments([]) == ["--backend-directory=/b", "--model-load-thread-count=1"]
    user = ["--model-load-thread-count", "4", "--http-port=1"]
    assert found.arguments(user) == ["--backend-directory=/b", *user]
    user = ["--backend-directory=/mine"]
    assert found.arguments(user) == ["--model-load-thread-count=1", *user]


def test_command_prints_the_real_servers_help_without_an_activated_environment() -> None:
    done = subprocess.run(
        [WRAPPER, "--help"], env={}, capture_output=True, text=True, timeout=30, check=False
    )
    assert "--model-load-thread-count <integer>" in done.stdout + done.stderr


@pytest.mark.triton
def test_command_serves_a_repository_without_an_activated_environment(tmp_path: Path, ports: Ports) -> None:
    flags = [f"--{name}-port={port}" for name, port in vars(ports).items()]
    command = [
        WRAPPER,
        f"--model-repository={shop(tmp_path / 'repository')}",
        *flags,
        "--http-address=127.0.0.1",
    ]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env={}, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        status = 0
        while status != 200:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            connection = http.client.HTTPConnection("127.0.0.1", ports.http, timeout=5)
            with contextlib.closing(connection), contextlib.suppress(ConnectionError):
                connection.request("GET", "/v2/models/shop/ready")
                status = connection.getresponse().status
            time.sleep(0.05)
        process.terminate()  # reaches the server itself: the wrapper has become it
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_command_explains_itself_without_a_traceback(tmp_path: Path) -> None:
    environ = {VARIABLE: str(tmp_path / "none")}
    done = subprocess.run([WRAPPER], env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == ServerError.exit_code
    assert done.stderr.startswith(f"tritonserver: {tmp_path / 'none'}: is not an executable file")
    assert "Traceback" not in done.stderr
