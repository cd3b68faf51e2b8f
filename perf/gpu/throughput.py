"""The dense network alone under load: graphs, instances, modes, MPS; and at an equal offered load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bireme.server.mps import mps_daemon
from gpu.bench import Bench
from gpu.serving import Session, serve
from gpu.steps import NotHere
from gpu.variants import one_by_one, set_instances, variant

__all__ = [
    "ALONE",
    "BEARABLE",
    "REFERENCE",
    "Configuration",
    "configurations",
    "dense_server",
    "reference_of",
    "said",
    "sharing",
    "table_row",
]

#: The configuration whose throughput says what an equal offered load is.
REFERENCE = "1 instance, no graphs"
#: Ends the names of configurations without dynamic batching.
ALONE = ", one by one"
#: Share of what the reference answers in a closed loop, which it can bear in an open one.
BEARABLE = 0.8
_OFF = {"BIREME_GRAPHS": "off"}
#: Clients that keep more than four instances busy.
_CROWD = (32,)


@dataclass(frozen=True)
class Configuration:
    """One row of the table.

    Args:
        instances: of the network.
        environment: of the server.
        mps: whether the instances share the GPU through MPS.
        merge: whether requests that wait run together; if not, each runs by itself.
        offered: whether it is also driven at the rate that the reference of its kind can just bear.
        clients: further numbers of clients.
    """

    instances: int
    environment: Mapping[str, str] = field(default_factory=dict)
    mps: bool = False
    merge: bool = True
    offered: bool = False
    clients: tuple[int, ...] = ()


def configurations(instances: int) -> tuple[dict[str, Configuration], dict[str, Configuration]]:
    """Name → configuration: those that answer what was asked for, and those that tell why, by importance."""
    many, alone = f"{instances} instances, graphs", "1 instance, graphs"
    background = {"BIREME_BACKGROUND": "on"}
    asked = {
        REFERENCE: Configuration(1, _OFF, offered=True),
        many: Configuration(instances, offered=True),
        f"{many}, MPS": Configuration(instances, mps=True, offered=True),
        alone: Configuration(1, offered=True),
    }
    awake = {"BIREME_SPIN": "2000"}
    asked |= {
        f"{REFERENCE}{ALONE}": Configuration(1, _OFF, merge=False, offered=True),
        f"{many}{ALONE}": Configuration(instances, merge=False, offered=True),
        f"{many}, MPS{ALONE}": Configuration(instances, mps=True, merge=False, offered=True),
    }
    why = {
        f"{many}, MPS, waits awake": Configuration(instances, awake, mps=True, offered=True, clients=_CROWD),
        f"{many}, waits awake": Configuration(instances, awake, clients=_CROWD),
        f"{2 * instances} instances, graphs, MPS": Configuration(2 * instances, mps=True, clients=_CROWD),
        f"{2 * instances} instances, graphs": Configuration(2 * instances, clients=_CROWD),
        f"{instances} instances, no graphs": Configuration(instances, _OFF),
        f"{alone}, answers in the background": Configuration(1, background),
        f"{many}, MPS, answers in the background": Configuration(instances, background, mps=True),
        "2 instances, graphs": Configuration(2),
        f"{alone}, MPS": Configuration(1, mps=True),
        f"{many}, 1 lane": Configuration(instances, {"BIREME_LANES": "1"}),
    }
    return asked, why


def reference_of(chosen: Configuration) -> str:
    """Whose throughput says how much is offered: the reference that merges requests, or does not, as well."""
    return REFERENCE if chosen.merge else f"{REFERENCE}{ALONE}"


def table_row(bench: Bench, name: str, chosen: Configuration, timeout: float) -> dict[str, Any]:
    """Serve one configuration and put each load on it.

    Returns:
        `closed`: one measurement for each number of clients; `offered`: at the reference's rate, or None.
    """
    with dense_server(bench, "network", name, chosen) as session:
        rows, closed = bench.sizes.base, []
        for clients in (*bench.sizes.clients, *chosen.clients):
            load = bench.dense_load("network", rows, clients=clients)
            closed.append(session.measure(load, rows, timeout))
        reference = reference_of(chosen)
        if name == reference:
            bench.findings[name] = BEARABLE * closed[0]["requests_per_s"]
        offered, rate = None, bench.findings.get(reference)
        if chosen.offered and rate:
            load = bench.dense_load("network", rows, clients=0, rate=rate)
            offered = session.measure(load, rows, timeout)
        result: dict[str, Any] = {"instances": chosen.instances, "mps": chosen.mps, "merge": chosen.merge}
        result["ready_s"] = session.took
        return {**result, "closed": closed, "offered": offered, "said": said(session.server.log)}


def said(log: Path | None) -> list[str]:
    """What the instances said of themselves when they were loaded: engine, lanes, graphs, memory."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log is not None else []
    return [line.split('"')[1] for line in lines if ": TensorRT " in line and line.count('"') > 1]


@contextlib.contextmanager
def dense_server(
    bench: Bench, what: str, name: str, chosen: Configuration, flags: tuple[str, ...] = ()
) -> Iterator[Session]:
    """A server with a copy of the dense network alone, configured as chosen."""
    model = f"{bench.model(what)}_dnn"
    stem = name.replace(",", "").replace(" ", "_")
    edits = [set_instances(chosen.instances), *([] if chosen.merge else [one_by_one])]
    repository = variant(bench.repository(what), [model], bench.work / "repositories" / stem, *edits)
    with sharing(bench, chosen.mps) as environment, contextlib.ExitStack() as stack:
        together = {**environment, **chosen.environment}
        yield stack.enter_context(serve(repository, bench.log(stem), together, flags))


@contextlib.contextmanager
def sharing(bench: Bench, mps: bool) -> Iterator[Mapping[str, str]]:
    """The variables that make the server's processes share the GPU through MPS, while its daemon runs."""
    if not mps:
        yield {}
        return
    if bench.rehearsal:
        raise NotHere("MPS needs a GPU")
    with mps_daemon() as environment:
        yield environment
