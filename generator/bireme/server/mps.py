"""NVIDIA's MPS daemon, so that the processes of one server share a GPU instead of taking turns.

It is the user's own: pipes and logs lie in a private folder that goes with it, and no setting of the GPU
(such as its compute mode) is touched. Programs find it by the two variables that `mps_daemon` yields.
"""

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

__all__ = ["COMMAND", "mps_daemon"]

COMMAND = "nvidia-cuda-mps-control"
_PATIENCE = 10.0  # seconds for the daemon to answer
_GRACE = 3.0  # seconds for it to end
# A Unix socket's path has room for 107 characters; the pipes' names take up to 30.
_LONGEST = 70
_SHORT = Path("/tmp")


@contextlib.contextmanager
def mps_daemon() -> Iterator[Mapping[str, str]]:
    """A daemon for as long as the context lasts; yields the variables that make programs use it.

    End whoever uses it before the context ends: the daemon waits for its clients.

    Raises:
        ServerError: the command is missing, or the daemon does not start.
    """
    if shutil.which(COMMAND) is None:
        hint = "it comes with NVIDIA's driver; without it: leave out --mps"
        raise ServerError(COMMAND, "is not on PATH", hint)
    folder = _folder()
    variables = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/p", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/l"}
    try:
        for path in variables.values():
            Path(path).mkdir(mode=0o700)
        environment = {**os.environ, **variables}
        try:
            _start(environment, folder)
            yield variables
        finally:
            _end(environment, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    base = Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix="mps", dir=base if len(str(base)) < _LONGEST else _SHORT))


def _ask(environment: Mapping[str, str], text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND],
        input=f"{text}\n",
        env=environment,
        timeout=_PATIENCE,
        capture_output=True,
        text=True,
        check=False,
    )


def _start(environment: Mapping[str, str], folder: Path) -> None:
    try:
        # A session of its own: Ctrl-C reaches us only, and we end the daemon after its clients.
        done = subprocess.run(
            [COMMAND, "-d"],
            env=environment,
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        if done.returncode:
            raise ServerError(COMMAND, f"does not start (exit status {done.returncode})", _last_line(folder))
        deadline = time.monotonic() + _PATIENCE
        while _ask(environment, "get_server_list").returncode:
            if time.monotonic() > deadline:
                raise ServerError(COMMAND, "does not answer", _last_line(folder))
            time.sleep(0.1)
    except (subprocess.SubprocessError, OSError) as error:
        raise ServerError(COMMAND, f"does not start: {error}", _last_line(folder)) from None


def _end(environment: Mapping[str, str], folder: Path) -> None:
    """Ask the daemon to end; if it does not, end it by its own process id."""
    with contextlib.suppress(subprocess.SubprocessError, OSError):
        _ask(environment, "quit")
    pid = _pid(folder)
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        if pid is None or not _is_daemon(pid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + _GRACE
        while _is_daemon(pid) and time.monotonic() < deadline:
            time.sleep(0.05)


def _pid(folder: Path) -> int | None:
    """What the daemon has written down; None: it has ended, and taken the file with it."""
    try:
        return int((folder / "p" / f"{COMMAND}.pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_daemon(pid: int) -> bool:
    """Whether a process is alive and still the daemon: ids are used again."""
    try:
        running = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return COMMAND.encode() in running


def _last_line(folder: Path) -> str:
    log = folder / "l" / "control.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return f"its log ends with: {lines[-1].strip()}" if lines else "its log is empty"
