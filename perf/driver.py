"""Closed-loop gRPC load from a process of its own: a client sends its next request when it has an answer."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import grpc  # type: ignore[import-untyped]

from bireme.errors import ClientError
from processes import busy_seconds, cpu_seconds
from ratios import percentile
from wire import METHOD

__all__ = ["LoadProcess", "Window"]

_TIMEOUT = 60.0  # seconds for one request: a server that hangs must not hang us
_WARM_UP = 0.2  # share of the measured time that is spent before it


@dataclass(frozen=True)
class Window:
    """One measured stretch of load on one model.

    Args:
        requests: how many were answered.
        seconds: how long it took.
        p50: median latency, ms.
        p99: 99th percentile of the latency, ms.
        cpu: role → CPU seconds.
        client: CPU seconds of the load generator.
        others: CPU seconds of everything else on the machine.
    """

    requests: int
    seconds: float
    p50: float
    p99: float
    cpu: Mapping[str, float] = field(default_factory=dict)
    client: float = 0.0
    others: float = 0.0


class LoadProcess:
    """The load generator; a context manager.

    Args:
        url: `host:port` of the server's gRPC endpoint.
        processes: process id → role, of the processes whose CPU time counts.
    """

    def __init__(self, url: str, processes: Mapping[int, str]) -> None:
        self._url = url
        # A fresh interpreter: gRPC does not survive a fork, and nothing of ours shall share its lock with it.
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, url, dict(processes)), daemon=True)

    def __enter__(self) -> LoadProcess:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.join()

    def prepare(self, name: Any, messages: Sequence[bytes]) -> None:
        """Hand over requests, serialised, to be sent in turn.

        Args:
            name: what `drive` and `ask` call them.
            messages: at least one.
        """
        self._call("prepare", name, list(messages))

    def ask(self, name: Any) -> list[bytes]:
        """Send each request of `name` once; the serialised answers.

        Raises:
            ClientError: the server refused one.
        """
        answers: list[bytes] = self._call("ask", name)
        return answers

    def drive(self, name: Any, clients: int, seconds: float) -> Window:
        """Send requests of `name` for a while, after a short warm-up.

        Args:
            name: as in `prepare`.
            clients: how many send at the same time.
            seconds: how long to measure.

        Raises:
            ClientError: the server refused one.
        """
        window: Window = self._call("drive", name, clients, seconds)
        return window

    def _call(self, *command: Any) -> Any:
        try:
            self._pipe.send(command)
            result, refusal = self._pipe.recv()
        except (EOFError, OSError):
            raise ClientError(
                "load generator", "has ended", "look for an out-of-memory kill (dmesg)"
            ) from None
        if refusal is not None:
            raise ClientError(self._url, f"a request failed: {refusal}", "see the server's log")
        return result


def _work(pipe: Connection, url: str, processes: Mapping[int, str]) -> None:
    """Main loop of the load generator's process."""
    generator = _Generator(url, processes)
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((getattr(generator, name)(*arguments), None))
        except grpc.RpcError as error:
            pipe.send((None, " ".join(error.details().split())))


class _Generator:
    def __init__(self, url: str, processes: Mapping[int, str]) -> None:
        self._url = url
        self._processes = processes
        self._messages: dict[Any, list[bytes]] = {}
        self._calls: list[Any] = []

    def prepare(self, name: Any, messages: list[bytes]) -> None:
        self._messages[name] = messages

    def ask(self, name: Any) -> list[bytes]:
        return [self._call(0)(message, timeout=_TIMEOUT) for message in self._messages[name]]

    def drive(self, name: Any, clients: int, seconds: float) -> Window:
        calls = [self._call(client) for client in range(clients)]
        self._send(name, calls, _WARM_UP * seconds)
        busy, cpu, client = busy_seconds(), cpu_seconds(self._processes), time.process_time()
        started = time.perf_counter()
        latencies = self._send(name, calls, seconds)
        elapsed = time.perf_counter() - started
        now = cpu_seconds(self._processes)
        spent = {role: now[role] - before for role, before in cpu.items()}
        client = time.process_time() - client
        others = max(0.0, busy_seconds() - busy - client - sum(spent.values()))
        p50, p99 = (1e3 * percentile(latencies, share) for share in (0.5, 0.99))
        return Window(len(latencies), elapsed, p50, p99, spent, client, others)

    def _send(self, name: Any, calls: Sequence[Any], seconds: float) -> list[float]:
        """Latencies in seconds of all requests that the clients sent."""
        messages = self._messages[name]
        latencies: list[list[float]] = [[] for _ in calls]
        failures: list[Exception] = []
        deadline = time.perf_counter() + seconds

        def run(client: int) -> None:
            # Clients start at different requests, so that they do not send the same one at the same time.
            first = client * len(messages) // len(calls)
            turn = itertools.islice(itertools.cycle(messages), first, None)
            ended = time.perf_counter()
            try:
                while ended < deadline or not latencies[client]:
                    started = time.perf_counter()
                    calls[client](next(turn), timeout=_TIMEOUT)
                    ended = time.perf_counter()
                    latencies[client].append(ended - started)
            except grpc.RpcError as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(client,)) for client in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return list(itertools.chain.from_iterable(latencies))

    def _call(self, client: int) -> Any:
        """The remote method on a connection that belongs to this client alone; bytes in, bytes out."""
        while len(self._calls) <= client:
            options = [
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ]
            channel = grpc.insecure_channel(self._url, options=options)
            self._calls.append(channel.unary_unary(METHOD))
        return self._calls[client]
