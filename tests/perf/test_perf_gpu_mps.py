"""MPS for one measurement, with a stand-in for NVIDIA's command: a script that behaves as its manual says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bireme.errors import ServerError
from gpu.mps import mps_daemon

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
