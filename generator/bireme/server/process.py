"""One tritonserver process: started, awaited, watched, stopped, with nothing left behind."""

from __future__ import annotations

import atexit
import contextlib
import http.client
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bireme.errors import ServerError
from bireme.server.cache import cache_flags
from bireme.server.gpu_plans import check_plans
from bireme.server.locate import Installation, locate
from bireme.server.ports import Ports, choose
from bireme.server.reasons import find_reason
from bireme.server.repository import check_repository
from bireme.server.stubs import clear, clear_stale, dead_stubs, live_stubs, new_prefix

__all__ = ["TritonServer"]

_POLL = 0.05
# Triton itself notices within 3 s most stubs that die while a model loads; for the others it waits for ever.
_DEAD_STUB_GRACE = 5.0
_LOG_TAIL = 1 << 20


class TritonServer:
    """A tritonserver on a model repository; usable as a context manager.

    Args:
        repository: the model repository. Every model of it must load.
        ports: where to listen; None: three free ones.
        host: address to bind.
        http_host: another one for HTTP.
        log: file for the server's output, replaced at start; None: a temporary one, which `stop` removes
            unless an error has pointed to it.
        flags: further tritonserver flags; they win over the ones set here.
        installation: which tritonserver; None: `locate()`'s.
        exit_timeout: seconds that `stop` gives to requests in flight (and to idle keep-alive connections of
            HTTP clients, which Triton also waits for).
        environment: further variables for the server and its Python processes; they win over all others.
    """

    def __init__(
        self,
        repository: Path,
        *,
        ports: Ports | None = None,
        host: str = "127.0.0.1",
        http_host: str | None = None,
        log: Path | None = None,
        flags: Sequence[str] = (),
        installation: Installation | None = None,
        exit_timeout: int = 5,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.repository = repository.absolute()
        self.ports = ports
        self.host, self._http_host = host, http_host or host
        self.log = log
        self._flags = tuple(flags)
        self._installation = installation
        self._exit_timeout = exit_timeout
        self._environment = dict(environment or {})
        self._prefix = new_prefix()
        self._process: subprocess.Popen[bytes] | None = None
        self._stubs: dict[int, str] = {}
        self._temporary_log: Path | None = None

    @property
    def http_url(self) -> str:
        """`host:port` for HTTP clients on this machine."""
        return f"{_reachable(self._http_host)}:{self._ports.http}"

    @property
    def grpc_url(self) -> str:
        """`host:port` for gRPC clients on this machine."""
        return f"{_reachable(self.host)}:{self._ports.grpc}"

    @property
    def metrics_url(self) -> str:
        """`host:port` of the Prometheus endpoint."""
        return f"{_reachable(self.host)}:{self._ports.metrics}"

    @property
    def pid(self) -> int | None:
        """Process id, or None when not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def inspect(self) -> tuple[Installation, tuple[str, ...]]:
        """Look at all that can be seen before a start; the server's place, and the names of the models.

        Raises:
            ServerError: no tritonserver, broken repository, or a TensorRT plan that does not fit.
        """
        models = check_repository(self.repository)
        installation = self._installation or locate()
        check_plans(self.repository, {**installation.environment, **self._environment})
        return installation, models

    def start(self, timeout: float = 120.0) -> None:
        """Start the server and wait until all its models are ready; on failure nothing is left running.

        Args:
            timeout: seconds until all models must be ready.

        Raises:
            ServerError: no tritonserver, broken repository, a TensorRT plan that does not fit, port taken,
                a model does not load, or time-out.
        """
        if self._process is not None:
            raise ServerError("tritonserver", "was started already", "stop it first")
        installation, models = self.inspect()
        clear_stale()
        self.ports = choose(self.ports or Ports(0, 0, 0), self.host)
        try:
            self._spawn(installation)
            self._await_ready(models, timeout)
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Return while all is well.

        Triton goes on saying "ready" when a Python process of a model has died, and answers each of that
        model's requests with an error: this notices.

        Raises:
            ServerError: the server or one of its models' Python processes has ended.
        """
        process = self._running()
        status = process.poll()
        if status is not None:
            reason = find_reason(self._text())
            # Having said why, Triton sometimes aborts where it meant to exit.
            if status < 0 and not reason.recognised:
                message = f"was ended by {signal.Signals(-status).name}"
                raise ServerError(
                    "tritonserver", message, self._hint("look for an out-of-memory kill (dmesg)")
                )
            raise ServerError(reason.where, f"tritonserver ended: {reason.message}", self._hint(reason.hint))
        dead = dead_stubs(process.pid)
        if dead:
            names = ", ".join(sorted({self._stubs.get(pid, "of a model") for pid in dead}))
            message = "died; its requests fail, and Triton does not restart it"
            hint = self._hint("restart the server; look for an out-of-memory kill (dmesg)")
            raise ServerError(f"Python process {names}", message, hint)

    def stop(self) -> None:
        """End the server and its Python processes, remove its shared memory; harmless when not running."""
        process, self._process = self._process, None
        try:
            if process is not None:
                atexit.unregister(self.stop)
                self._end(process)
        finally:
            clear(self._prefix)
            if self._temporary_log is not None:
                self._temporary_log.unlink(missing_ok=True)

    def __enter__(self) -> TritonServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _spawn(self, installation: Installation) -> None:
        if self.log is None:
            handle, name = tempfile.mkstemp(prefix="bireme-tritonserver-", suffix=".log")
            os.close(handle)
            self.log = self._temporary_log = Path(name)
        command = [str(installation.command), *installation.arguments([*self._own_flags(), *self._flags])]
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("wb") as output:
                # A session of its own: Ctrl-C reaches us only, and we end the server in order.
                self._process = subprocess.Popen(
                    command,
                    env={**os.environ, **installation.environment, **self._environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            where = str(error.filename or installation.command)
            raise ServerError(where, f"cannot be used: {error.strerror}", "check that it exists") from None
        atexit.register(self.stop)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Ask the server to end, and insist if it does not, or if the user does not want to wait."""
        # A server that has lost a stub would wait for it until its exit time-out.
        patience = 1 if dead_stubs(process.pid) else self._exit_timeout + 5
        try:
            process.terminate()
            process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()

    def _own_flags(self) -> list[str]:
        ports = self._ports
        return [
            f"--model-repository={self.repository}",
            f"--http-address={self._http_host}",
            f"--grpc-address={self.host}",
            f"--metrics-address={self.host}",
            f"--http-port={ports.http}",
            f"--grpc-port={ports.grpc}",
            f"--metrics-port={ports.metrics}",
            f"--exit-timeout-secs={self._exit_timeout}",
            "--exit-on-error=true",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            *cache_flags(self.repository),
        ]

    def _await_ready(self, models: Sequence[str], timeout: float) -> None:
        paths = ["/v2/health/ready", *(f"/v2/models/{model}/ready" for model in models)]
        started = time.monotonic()
        dead_since: float | None = None
        # Ready must be said by this server: another one may have taken the ports since they were checked.
        while not (self._listens() and all(self._answers(path) for path in paths)):
            process = self._running()
            if process.poll() is not None:
                self.check()
            now = time.monotonic()
            dead_since = (dead_since or now) if dead_stubs(process.pid) else None
            if dead_since is not None and now - dead_since > _DEAD_STUB_GRACE:
                reason = find_reason(self._text())
                raise ServerError(reason.where, reason.message, self._hint(reason.hint))
            if now - started > timeout:
                reason = find_reason(self._text())
                message = f"is not ready after {timeout:g} s; {reason.where}: {reason.message}"
                raise ServerError("tritonserver", message, self._hint("allow more time, or read the log"))
            time.sleep(_POLL)
        self._stubs = live_stubs(self._prefix)

    def _listens(self) -> bool:
        """Whether this very process has opened both its ports, by its own log."""
        text = self._text()
        return all(f"Started {service}" in text for service in ("GRPCInferenceService", "HTTPService"))

    def _answers(self, path: str) -> bool:
        connection = http.client.HTTPConnection(_reachable(self._http_host), self._ports.http, timeout=2)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("tritonserver", "is not running", "start it first")
        return self._process

    @property
    def _ports(self) -> Ports:
        if self.ports is None:
            raise ServerError("tritonserver", "has no ports before it is started", "start it first")
        return self.ports

    def _text(self) -> str:
        if self.log is None or not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _LOG_TAIL))
            return file.read().decode("utf-8", errors="replace")

    def _hint(self, remedy: str) -> str:
        self._temporary_log = None
        return "; ".join(filter(None, [remedy, f"its log: {self.log}"]))


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
