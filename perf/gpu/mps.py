"""NVIDIA's MPS daemon for the duration of one measurement; no setting of the GPU is touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bireme.errors import ServerError

__all__ = ["mps_daemon"]

_COMMAND = "nvidia-cuda-mps-control"
_PATIENCE = 10.0  # seconds for the daemon to answer
_GRACE = 3.0  # seconds for it to end


@contextlib.contextmanager
def mps_daemon() -> Iterator[Mapping[str, str]]:
    """A daemon of our own, with pipes in a private folder; the variables that make programs use it.

    Raises:
        ServerError: there is none, or it does not start.
    """
    if shutil.which(_COMMAND) is None:
        raise ServerError(_COMMAND, "is not on PATH", "it comes with NVIDIA's driver")
    folder = Path(tempfile.mkdtemp(prefix="mps"))  # short: a Unix socket's path has room for 107 characters
    variables = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/p", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/l"}
    for path in variables.values():
        Path(path).mkdir(mode=0o700)
    environment = {**os.environ, **variables}
    try:
        _start(environment, folder)
        yield variables
    finally:
        _end(environment, folder)
        shutil.rmtree(folder, ignore_errors=True)


def _ask(environment: Mapping[str, str], text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_COMMAND], input=f"{text}\n", env=environment, timeout=_PATIENCE, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def _start(environment: Mapping[str, str], folder: Path) -> None:
    try:
        subprocess.run([_COMMAND, "-d"], env=environment, check=True, timeout=_PATIENCE, capture_output=True)
        deadline = time.monotonic() + _PATIENCE
        while _ask(environment, "get_server_list").returncode:
            if time.monotonic() > deadline:
                raise ServerError(_COMMAND, "does not answer", _last_line(folder))
            time.sleep(0.1)
    except subprocess.SubprocessError as error:
        raise ServerError(_COMMAND, f"does not start: {error}", _last_line(folder)) from None


def _end(environment: Mapping[str, str], folder: Path) -> None:
    """Ask the daemon to end; if it does not, end it by its own process id."""
    with contextlib.suppress(subprocess.SubprocessError):
        _ask(environment, "quit")
    file = folder / "p" / "nvidia-cuda-mps-control.pid"
    deadline = time.monotonic() + _GRACE
    while file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if file.exists():
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(file.read_text(encoding="ascii")), signal.SIGTERM)


def _last_line(folder: Path) -> str:
    log = folder / "l" / "control.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "its log is empty"
