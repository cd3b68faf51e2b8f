"""gRPC load from a process of its own.

In a closed loop (`drive`) a client sends its next request when it has an answer; in an open one (`pace`)
requests come when they come, whether the server is done or not, and wait for it if need be.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
_SENDERS = 24  # of an open loop: so many requests may be under way


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

    def pace(self, name: Any, rate: float, seconds: float, seed: int) -> Window:
        """Send requests of `name` at a rate, after a short warm-up; a latency begins when a request is due.

        Args:
            name: as in `prepare`.
            rate: requests a second on average; they come at random times, as from many clients.
            seconds: how long to measure.
            seed: equal seeds, equal times.

        Raises:
            ClientError: the server refused one.
        """
        window: Window = self._call("pace", name, rate, seconds, seed)
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
        return self._measured(lambda: self._send(name, calls, seconds))

    def pace(self, name: Any, rate: float, seconds: float, seed: int) -> Window:
        rng = random.Random(seed)
        self._send_when_due(name, _arrivals(rng, rate, _WARM_UP * seconds))
        due = _arrivals(rng, rate, seconds)
        return self._measured(lambda: self._send_when_due(name, due))

    def _measured(self, send: Callable[[], list[float]]) -> Window:
        """What sending costs; `send` returns latencies in seconds."""
        busy, cpu, client = busy_seconds(), cpu_seconds(self._processes), time.process_time()
        started = time.perf_counter()
        latencies = send()
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
        deadline = time.perf_counter() + seconds

        def run(client: int) -> None:
            # Clients start at different requests, so that they do not send the same one at the same time.
            first = client * len(messages) // len(calls)
            turn = itertools.islice(itertools.cycle(messages), first, None)
            ended = time.perf_counter()
            while ended < deadline or not latencies[client]:
                started = time.perf_counter()
                calls[client](next(turn), timeout=_TIMEOUT)
                ended = time.perf_counter()
                latencies[client].append(ended - started)

        _in_threads(run, len(calls))
        return list(itertools.chain.from_iterable(latencies))

    def _send_when_due(self, name: Any, due: Sequence[float]) -> list[float]:
        """Latencies in seconds, from when a request was due: to wait for a sender is to wait.

        Args:
            name: as in `prepare`.
            due: seconds from now, ascending.
        """
        messages, calls = self._messages[name], [self._call(sender) for sender in range(_SENDERS)]
        numbers = itertools.count()  # of requests; one step of it is atomic
        latencies = [0.0] * len(due)
        began = time.perf_counter()

        def run(sender: int) -> None:
            while (number := next(numbers)) < len(due):
                time.sleep(max(0.0, began + due[number] - time.perf_counter()))
                calls[sender](messages[number % len(messages)], timeout=_TIMEOUT)
                latencies[number] = time.perf_counter() - began - due[number]

        _in_threads(run, _SENDERS)
        return latencies

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


def _arrivals(rng: random.Random, rate: float, seconds: float) -> list[float]:
    """Times of a Poisson process, at least one."""
    times = [rng.expovariate(rate)]
    while times[-1] < seconds:
        times.append(times[-1] + rng.expovariate(rate))
    return times[:-1] or times


def _in_threads(run: Callable[[int], None], count: int) -> None:
    """Call `run` with 0, 1, … in as many threads; raises what the first of them raised."""
    failures: list[Exception] = []

    def attempt(number: int) -> None:
        try:
            run(number)
        except grpc.RpcError as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
