"""`bireme serve`: start tritonserver on a repository, show that it ranks, keep it running until Ctrl-C."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bireme.emitter.manifest import MANIFEST, check_repository, read_manifest
from bireme.errors import BiremeError, ClientError, ServerError
from bireme.probe.probe import EXAMPLE, GOLDEN, read_question
from bireme.probe.probe import probe as _probe
from bireme.server.mps import mps_daemon
from bireme.server.ports import Ports, ipv4_address
from bireme.server.preload import preload
from bireme.server.process import TritonServer
from bireme.server.security import Tls, admin_flags, tls_flags

__all__ = ["ranking_table", "serve"]

_SHOWN = 10
_REBUILD = "build the repository again: bireme build (or make repo)"
_CHECK_SECONDS = 0.5
# A first request may be slow: libraries load, engines warm up.
_FIRST_ANSWER = 30.0

Scores = Mapping[str, np.ndarray[Any, Any]]
_console = Console()


def serve(
    repository: Path,
    http: int,
    grpc: int,
    metrics: int,
    host: str,
    once: bool,
    jemalloc: bool | None = None,
    mps: bool = False,
    admin_key: str | None = None,
    tls: Tls | None = None,
) -> int:
    """Serve a repository that `bireme build` wrote, and rank each ensemble's example request.

    Args:
        repository: the model repository.
        http: port, 0 for any free one; `grpc` and `metrics` likewise.
        grpc: port.
        metrics: port.
        host: address to listen on.
        jemalloc: False: the system's allocator; True: refuse to start without jemalloc; None: if it is there.
        mps: run NVIDIA's MPS daemon beside the server, so that its processes share the GPU.
        admin_key: opens Triton's administration to whoever sends it; None: closed to everybody.
        tls: for the gRPC port; HTTP, which has none, then listens on loopback only.
        once: end after the example request instead of at Ctrl-C, SIGTERM or SIGHUP.

    Returns:
        0: ended on request.

    Raises:
        EmitError: a file of the repository is missing or damaged.
        ServerError: the server cannot be started, or ended by itself.
        VerifyError: the example's scores are not finite, or not the recorded ones.
        ClientError: the example request does not fit the model.
        KeyboardInterrupt: asked to end before the models were ready.
    """
    ensembles = _ensembles(repository)
    for ensemble in ensembles:
        check_repository(repository, ensemble)
    host = ipv4_address(host)
    allocator = preload(os.environ, jemalloc)
    _console.print(allocator.line, highlight=False, markup=False, soft_wrap=True)
    ports = Ports(http, grpc, metrics)
    flags = [*admin_flags(admin_key), *tls_flags(tls)]
    with _signals_interrupt(), _sharing(mps) as variables:
        environment = {**allocator.environment, **variables}
        server = TritonServer(
            repository,
            ports=ports,
            host=host,
            http_host=None if tls is None else "127.0.0.1",
            flags=flags,
            environment=environment,
        )
        try:
            _start(server)
            try:
                for ensemble in ensembles:
                    _show_example(server, ensemble)
                if once:
                    return 0
                _console.print(
                    _where(server, admin_key is not None, tls is not None),
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )
                while True:
                    server.check()
                    time.sleep(_CHECK_SECONDS)
            except KeyboardInterrupt:
                _console.print("\nstopping")
        finally:
            server.stop()
    _console.print("stopped")
    return 0


@contextmanager
def _sharing(mps: bool) -> Iterator[Mapping[str, str]]:
    """The MPS daemon's variables, if it is wanted; it ends after the server."""
    if not mps:
        yield {}
        return
    with mps_daemon() as variables:
        folder = variables["CUDA_MPS_LOG_DIRECTORY"]
        _console.print(f"MPS daemon, log in {folder}", highlight=False, markup=False, soft_wrap=True)
        yield variables


def ranking_table(ensemble: str, request: Mapping[str, Any], scores: Scores, shown: int = _SHOWN) -> Table:
    """The best candidates of a request.

    Args:
        ensemble: name, for the title.
        request: {"user": {…}, "items": {feature: list of N}}.
        scores: task → FP32 [N]; the first task decides the order, equal scores keep the candidates' order.
        shown: rows at most.
    """
    first = next(iter(scores.values()))
    order = np.argsort(-first, kind="stable")[:shown]
    name, labels = _labels(request["items"], len(first))
    table = Table(title=f"{escape(ensemble)}: best {len(order)} of {len(first)} candidates")
    table.add_column("rank", justify="right")
    table.add_column(escape(name))
    for task in scores:
        table.add_column(escape(task), justify="right")
    for rank, index in enumerate(order, start=1):
        values = [f"{values[index]:.6f}" for values in scores.values()]
        table.add_row(str(rank), escape(labels[index]), *values)
    return table


def _labels(items: Mapping[str, Any], count: int) -> tuple[str, Sequence[str]]:
    """What to call the candidates: their `item_id`, else their first string feature, else their position."""
    strings = [n for n, v in items.items() if isinstance(v, list) and v and isinstance(v[0], str)]
    name = "item_id" if "item_id" in items else next(iter(strings), None)
    if name is None:
        return "candidate", [str(index) for index in range(count)]
    return name, [str(value) for value in items[name]]


def _ensembles(repository: Path) -> list[str]:
    """Names of the ensembles that `bireme build` wrote into the repository."""
    if not repository.is_dir():
        problem = "is not a folder" if repository.exists() else "does not exist"
        raise ServerError(str(repository), problem, _REBUILD)
    found = sorted(path.parent.name for path in repository.glob(f"*/{MANIFEST}"))
    if not found:
        raise ServerError(str(repository), f"holds no model that bireme built (no */{MANIFEST})", _REBUILD)
    return found


def _start(server: TritonServer) -> None:
    begin = time.monotonic()
    text = f"starting tritonserver on {escape(str(server.repository))}"
    if _console.is_terminal:
        with _console.status(text):
            server.start()
    else:
        _console.print(text, highlight=False, soft_wrap=True)
        server.start()
    _console.print(f"ready after {time.monotonic() - begin:.1f} s", highlight=False)


def _show_example(server: TritonServer, ensemble: str) -> None:
    folder = server.repository / ensemble
    try:
        question = read_question(ensemble, folder / EXAMPLE, folder / GOLDEN)
    except ClientError as error:
        raise ServerError(error.where, error.message, _REBUILD) from None
    try:
        answer = _probe(server.http_url, "http", question, _FIRST_ANSWER)
    except BiremeError:
        server.check()  # a server that has died is the better explanation
        raise
    scores = {task: np.array(values, np.float32) for task, values in answer.scores.items()}
    tasks = read_manifest(server.repository, ensemble).get("tasks") or list(scores)
    missing = next((task for task in tasks if task not in scores), None)
    if missing is not None:
        message = f"names the task '{missing}', which the served ensemble does not have"
        raise ServerError(str(folder / MANIFEST), message, _REBUILD)
    _console.print(ranking_table(ensemble, question.request, {task: scores[task] for task in tasks}))


def _where(server: TritonServer, admin: bool, tls: bool) -> str:
    return (
        f"HTTP on {server.http_url}, gRPC on {server.grpc_url}{' (TLS)' if tls else ''}\n"
        f"metrics on http://{server.metrics_url}/metrics\n"
        f"administration {'with the admin key' if admin else 'closed (no admin key)'}\n"
        f"log in {server.log}\n"
        "Ctrl-C ends it"
    )


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP (a closed terminal) end us as Ctrl-C does; ignored ones (nohup) stay ignored."""
    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
