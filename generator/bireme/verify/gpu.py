"""What `verify` does beyond scores on a repository whose networks run on a GPU.

A first server answers fixed inputs without CUDA Graphs: the reference. A second one, the repository's own,
writes a verbose log, is asked in sequences, and must give the reference's answers; its log must show that
graphs were captured and launched.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bireme.server.process import TritonServer
from bireme.verify.direct import Direct, Sent, number, plain_answers
from bireme.verify.evidence import Evidence, judge, with_shapes
from bireme.verify.gpu_network import GpuNetwork
from bireme.verify.graph_log import GraphLog, parse
from bireme.verify.orders import GRAPH_TOLERANCE, Ordered, compare_orders
from bireme.verify.sequences import orders

__all__ = ["GpuCheck", "NetworkFound", "Watched", "watched_server"]

Progress = Callable[[str, int, int], None]
_START_SECONDS = 300.0
_QUIET_SECONDS = 0.3
_PATIENCE = 5.0


@dataclass
class NetworkFound:
    """What was found out about one network.

    Args:
        network: its config.
        ordered: sequences against plain execution.
        evidence: what the log says.
    """

    network: GpuNetwork
    ordered: Ordered
    evidence: Evidence

    def as_data(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "model": self.network.name,
            "backend": self.network.backend,
            "sequences": self.ordered.as_data(),
            "graphs": self.evidence.as_data(),
        }


@dataclass
class GpuCheck:
    """The plan of one check, and its references.

    Args:
        networks: of the repository.
        plan: network → name of a sequence → what to send.
        plain: network → request → answers without graphs.
    """

    networks: Sequence[GpuNetwork]
    plan: Mapping[str, Mapping[str, Sequence[Sent]]]
    plain: Mapping[str, Mapping[Sent, Mapping[str, Any]]]
    _ordered: dict[str, Ordered] = field(default_factory=dict)
    _sections: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls,
        repository: Path,
        networks: Sequence[GpuNetwork],
        environment: Mapping[str, str],
        progress: Progress,
    ) -> GpuCheck:
        """Decide on the sequences, and get the references from a server without graphs.

        Raises:
            BiremeError: that server cannot be started, or refuses a request.
        """
        plan = {network.name: number(orders(network.buckets, network.max_users)) for network in networks}
        sent = {name: [key for keys in named.values() for key in keys] for name, named in plan.items()}
        return cls(networks, plan, plain_answers(repository, networks, sent, environment, progress))

    def ask(self, watched: Watched, progress: Progress) -> None:
        """Send every sequence to the networks themselves, one request at a time."""
        for network in self.networks:
            begin = _settled_size(watched.log)
            with Direct(watched.server.grpc_url, network) as direct:
                self._ordered[network.name] = compare_orders(
                    network.name,
                    self.plan[network.name],
                    direct,
                    self.plain[network.name],
                    lambda _, plain: GRAPH_TOLERANCE * float(abs(plain).max(initial=0.0)),
                    lambda done, total, name=network.name: progress(f"{name} in sequences", done, total),  # type: ignore[misc]
                )
            self._sections[network.name] = (begin, _settled_size(watched.log))
            self._note(network)

    def judge(self, watched: Watched) -> list[NetworkFound]:
        """Read the log: captures since the start, executions since the server was ready (it may warm up)."""
        content, ready = watched.log.read_bytes(), watched.ready

        def logs(begin: int, end: int | None) -> dict[str, GraphLog]:
            return parse(content[begin:end].decode("utf-8", errors="replace").splitlines())

        whole, later = logs(0, None), logs(ready, None)
        found = []
        for network in self.networks:
            begin, end = self._sections[network.name]
            sent = [key.shape for keys in self.plan[network.name].values() for key in keys]
            inside = logs(begin, end).get(network.name, GraphLog()).runs
            runs = later.get(network.name, GraphLog()).runs
            if network.backend == "tensorrt":
                before = logs(ready, begin).get(network.name, GraphLog()).runs
                after = logs(end, None).get(network.name, GraphLog()).runs
                runs = [*before, *with_shapes(network, inside, sent), *after]
            evidence = judge(network, whole.get(network.name, GraphLog()), runs, sent)
            found.append(NetworkFound(network, self._ordered[network.name], evidence))
        return found

    def _note(self, network: GpuNetwork) -> None:
        """Say so where the inputs cannot tell a stale answer from a right one."""
        plain = self.plain[network.name]
        pairs = [(key, Sent(key.shape, 1)) for key in plain if key.variant == 0]
        equal = [
            first
            for first, second in pairs
            if second in plain
            and all(plain[first][name].tobytes() == plain[second][name].tobytes() for name in plain[first])
        ]
        if equal:
            self._ordered[network.name].notes.append(
                f"{len(equal)} shapes answer two different inputs alike: stale answers would not show there"
            )


@dataclass
class Watched:
    """A server whose log is read.

    Args:
        server: ready.
        log: its log.
        ready: size of the log when the server was ready.
        keep: whether the log outlives the server.
    """

    server: TritonServer
    log: Path
    ready: int
    keep: bool = False


@contextlib.contextmanager
def watched_server(repository: Path, environment: Mapping[str, str]) -> Iterator[Watched]:
    """A server that logs every launch.

    Its log stays where it is if an error passes by, or if `keep` says so: whoever reads of a failure will
    want to read it.
    """
    folder = Path(tempfile.mkdtemp(prefix="bireme-verify-"))
    log = folder / "server.log"
    server = TritonServer(repository, log=log, flags=["--log-verbose=1"], environment=environment)
    keep = True
    try:
        server.start(_START_SECONDS)
        watched = Watched(server, log, log.stat().st_size)
        yield watched
        keep = watched.keep
    finally:
        server.stop()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _settled_size(log: Path) -> int:
    """The log's size once nothing more is written: the Python backend hands lines over in its own time."""
    deadline = time.monotonic() + _PATIENCE
    size = log.stat().st_size
    while time.monotonic() < deadline:
        time.sleep(_QUIET_SECONDS)
        now = log.stat().st_size
        if now == size:
            break
        size = now
    return size
