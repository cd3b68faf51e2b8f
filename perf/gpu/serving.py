"""One tritonserver at a time, and what it and the GPU do under a load."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bireme.errors import ServerError
from bireme.server.process import TritonServer
from gpu.analyzer import Load, run_load
from gpu.monitor import GpuMonitor
from processes import cpu_seconds, roles

__all__ = ["BACKENDS", "Session", "named_server", "serve"]

BACKENDS = "TRITON_BACKENDS"
"""Environment variable that names the folder of Triton's backends, where it is not the server's default."""

_PATIENCE = 120.0  # seconds for a server to load its models
_LOG_TAIL, _LOG_WIDTH = 8, 500


@dataclass
class Session:
    """A running server.

    Args:
        server: the server.
        took: seconds from its start until all models were ready.
    """

    server: TritonServer
    took: float

    def measure(self, load: Load, rows: int, timeout: float = 60.0) -> dict[str, Any]:
        """Put a load on it.

        Args:
            load: what to send.
            rows: candidates of a request.
            timeout: seconds for the load.

        Returns:
            What perf_analyzer found, with rows a second, the GPU's use, cores that each role kept busy, and
            the mean number of requests that the model ran together.

        Raises:
            ServerError: the load failed, or the server died under it.
        """
        assert self.server.pid is not None
        processes = roles(self.server.pid)
        counts, cpu, began = self.statistics(load.model), cpu_seconds(processes), time.monotonic()
        with GpuMonitor() as monitor:
            found = run_load(load, self.server.grpc_url, timeout)
        elapsed = time.monotonic() - began
        self.server.check()
        spent = cpu_seconds(processes)
        after = self.statistics(load.model)
        merged = _grown(counts, after, "inference_count") / max(1, _grown(counts, after, "execution_count"))
        return {
            **{key: round(value, 1) for key, value in dataclasses.asdict(found).items()},
            "rows_per_s": round(found.requests_per_s * rows),
            "rows": rows,
            "clients": load.clients if not load.rate else None,
            "offered_per_s": round(load.rate, 1) or None,
            "merged": round(merged, 2),
            "gpu_percent": monitor.busy,
            "gpu_memory_mb": monitor.memory_mb,
            # A lower bound: perf_analyzer's own start is within this time.
            "cores": {role: round((spent[role] - cpu[role]) / elapsed, 2) for role in cpu},
        }

    def statistics(self, model: str) -> dict[str, Any]:
        """Triton's own counts of a model, its instances together."""
        url = f"http://{self.server.http_url}/v2/models/{model}/stats"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["model_stats"][0]
        return found


@contextlib.contextmanager
def serve(
    repository: Path, log: Path, environment: Mapping[str, str] | None = None, flags: tuple[str, ...] = ()
) -> Iterator[Session]:
    """A server on a repository, ended when the context is; an error brings the end of its log along.

    Args:
        repository: every model of it must load.
        log: file for the server's output.
        environment: further variables for the server and its Python processes.
        flags: further flags.
    """
    server = TritonServer(repository, log=log, environment=environment, flags=flags)
    began = time.monotonic()
    try:
        server.start(_PATIENCE)
        yield Session(server, round(time.monotonic() - began, 1))
    except Exception as error:
        error.log = _tail(log)  # type: ignore[attr-defined]
        raise
    finally:
        server.stop()


def named_server(folder: Path, backends: str = "", environment: Mapping[str, str] | None = None) -> Path:
    """A command that starts the tritonserver on PATH with other backends and another environment.

    For `BIREME_TRITONSERVER`: what it names is started without any change to the environment.

    Args:
        folder: where to write it.
        backends: folder of the backends; empty: the one in `TRITON_BACKENDS`.
        environment: variables to set.

    Raises:
        ServerError: there is no tritonserver on PATH.
    """
    command = shutil.which("tritonserver")
    if command is None:
        raise ServerError("tritonserver", "is not on PATH", "source the environment that holds it")
    lines = ["#!/bin/sh", *(f"export {name}='{value}'" for name, value in (environment or {}).items())]
    backends = backends or os.environ[BACKENDS]
    lines.append(f"exec '{command}' --backend-directory='{backends}' \"$@\"")
    path = folder / "tritonserver"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> int:
    return int(after.get(key, 0)) - int(before.get(key, 0))


def _tail(log: Path) -> list[str]:
    if not log.exists():
        return []
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if not line.startswith(("|", "+"))]  # no tables
    telling = [line[:_LOG_WIDTH] for line in lines if line.startswith("E") or "rror" in line]
    return telling[-_LOG_TAIL:] or [line[:_LOG_WIDTH] for line in lines[-_LOG_TAIL:]]
