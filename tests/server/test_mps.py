"""The MPS daemon, with a stand-in for NVIDIA's command: a script that behaves as its manual says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from server_repositories import shop

from bireme.errors import ServerError
from bireme.server.mps import mps_daemon

SCRIPT = """\
#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
if [ "$1" = -d ]; then echo $$ > $pipe; exit {start}; fi
read command
echo "$command" >> {log}
[ "$command" = quit ] && rm -f $pipe
exit 0
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "nvidia-cuda-mps-control"
    path.write_text(SCRIPT.format(start=0, log=tmp_path / "log"), encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return path


def test_the_daemon_lives_as_long_as_its_context_and_leaves_nothing(command: Path) -> None:
    with mps_daemon() as variables:
        pipe = Path(variables["CUDA_MPS_PIPE_DIRECTORY"])
        assert (pipe / "nvidia-cuda-mps-control.pid").exists()
        assert pipe.stat().st_mode & 0o077 == 0
        assert len(str(pipe)) < 60
    assert (command.parent / "log").read_text().split() == ["get_server_list", "quit"]
    assert not pipe.parent.exists()


def test_it_ends_when_what_it_serves_fails(command: Path) -> None:
    with pytest.raises(RuntimeError, match="server"), mps_daemon():
        raise RuntimeError("server")
    assert (command.parent / "log").read_text().split()[-1] == "quit"


def test_a_daemon_that_does_not_start_is_told(command: Path) -> None:
    command.write_text(SCRIPT.format(start=1, log=command.parent / "log"), encoding="utf-8")
    with pytest.raises(ServerError, match="does not start"), mps_daemon():
        pass


def test_without_the_command_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="is not on PATH"), mps_daemon():
        pass


STUBBORN = """\
#!/bin/sh
if [ "$1" = stay ]; then while true; do sleep 0.1; done; fi
if [ "$1" = -d ]; then "$0" stay & echo $! > $CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid; exit 0; fi
read command
exit 0
"""


def test_a_daemon_that_does_not_quit_is_ended_by_its_id(
    command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bireme.server.mps._GRACE", 0.3)
    command.write_text(STUBBORN, encoding="utf-8")
    with mps_daemon() as variables:
        pid = int((Path(variables["CUDA_MPS_PIPE_DIRECTORY"]) / "nvidia-cuda-mps-control.pid").read_text())
        assert b"stay" in Path(f"/proc/{pid}/cmdline").read_bytes()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _lives(pid):
        time.sleep(0.05)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return b"stay" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.triton
def test_serve_starts_it_and_ends_it_after_the_server(command: Path, tmp_path: Path) -> None:
    repository = shop(tmp_path / "repository")
    asked = [str(Path(sys.executable).with_name("bireme")), "serve", "-r", str(repository), "--mps"]
    asked += ["--http=0", "--grpc=0", "--metrics=0"]
    serving = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert serving.stdout is not None
    lines: list[str] = []
    for line in serving.stdout:
        lines.append(line)
        if "Ctrl-C ends it" in line:
            break
    logs = next(Path(line.split()[-1]) for line in lines if "MPS daemon" in line)
    pid = next(
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and f"--model-repository={repository}" in _command_line(entry)
    )
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    assert f"CUDA_MPS_LOG_DIRECTORY={logs}" in variables
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(30) == 0
    assert (tmp_path / "log").read_text().split() == ["get_server_list", "quit"]
    assert not logs.parent.exists()


def _command_line(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_text()
    except OSError:
        return ""
