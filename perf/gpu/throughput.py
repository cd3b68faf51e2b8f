"""The dense network alone under load: graphs, instances, modes, MPS; and at an equal offered load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu.bench import Bench
from gpu.serving import Session, serve
from gpu.steps import NotHere
from gpu.variants import set_instances, set_parameter, variant

__all__ = ["CONFIGURATIONS", "REFERENCE", "Configuration", "table_row"]

#: The configuration whose throughput says what an equal offered load is.
REFERENCE = "1 instance, no graphs"
_BEARABLE = 0.8  # share of what the reference answers in a closed loop
_OFF = {"BIREME_GRAPHS": "off"}


@dataclass(frozen=True)
class Configuration:
    """One row of the table.

    Args:
        instances: of the network.
        environment: of the server.
        parameters: string parameters of the network's config.
        mps: whether the instances share the GPU through MPS.
        offered: whether it is also driven at the rate that the reference can just bear.
    """

    instances: int
    environment: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    mps: bool = False
    offered: bool = False


def configurations(instances: int) -> dict[str, Configuration]:
    """Name → configuration, in order of importance."""
    many = f"{instances} instances, graphs"
    return {
        REFERENCE: Configuration(1, _OFF, offered=True),
        many: Configuration(instances, offered=True),
        f"{many}, MPS": Configuration(instances, mps=True, offered=True),
        "1 instance, graphs": Configuration(1, offered=True),
        "2 instances, graphs": Configuration(2),
        f"{instances} instances, no graphs": Configuration(instances, _OFF),
        f"{many}, waits in execute": Configuration(instances, {"BIREME_ASYNC": "off"}),
        "2 instances, graphs, MPS": Configuration(2, mps=True),
        "1 instance, graphs, MPS": Configuration(1, mps=True),
    }


CONFIGURATIONS = configurations(4)


def table_row(bench: Bench, name: str, chosen: Configuration, timeout: float) -> dict[str, Any]:
    """Serve one configuration and put each load on it.

    Returns:
        `closed`: one measurement for each number of clients; `offered`: at the reference's rate, or None.
    """
    with dense_server(bench, "network", name, chosen) as session:
        rows, closed = bench.sizes.base, []
        for clients in bench.sizes.clients:
            load = bench.dense_load("network", rows, clients=clients)
            closed.append(session.measure(load, rows, timeout))
        if name == REFERENCE:
            bench.findings["offered"] = _BEARABLE * closed[0]["requests_per_s"]
        offered, rate = None, bench.findings.get("offered")
        if chosen.offered and rate:
            load = bench.dense_load("network", rows, clients=0, rate=rate)
            offered = session.measure(load, rows, timeout)
        result = {"instances": chosen.instances, "mps": chosen.mps, "ready_s": session.took}
        return {**result, "closed": closed, "offered": offered}


@contextlib.contextmanager
def dense_server(
    bench: Bench, what: str, name: str, chosen: Configuration, flags: tuple[str, ...] = ()
) -> Iterator[Session]:
    """A server with a copy of the dense network alone, configured as chosen."""
    model = f"{bench.model(what)}_dnn"
    stem = name.replace(",", "").replace(" ", "_")
    edits = [set_instances(chosen.instances)]
    edits += [set_parameter(key, value) for key, value in chosen.parameters.items()]
    repository = variant(bench.repository(what), [model], bench.work / "repositories" / stem, *edits)
    with _mps(bench, chosen) as environment, contextlib.ExitStack() as stack:
        together = {**environment, **chosen.environment}
        yield stack.enter_context(serve(repository, bench.log(stem), together, flags))


@contextlib.contextmanager
def _mps(bench: Bench, chosen: Configuration) -> Iterator[Mapping[str, str]]:
    """The variables that make the server's processes share the GPU, while the daemon runs."""
    if not chosen.mps:
        yield {}
        return
    if bench.rehearsal:
        raise NotHere("MPS needs a GPU")
    from bireme.server.mps import mps_daemon

    with mps_daemon() as environment:
        yield environment
