"""jemalloc or the system's allocator: two servers on one repository, driven in turn.

    python perf/jemalloc.py --spec examples/obd/bireme.yaml --out perf/results/jemalloc.json

Requests of three sizes from several clients, as in soak.py. CPU time a request, throughput and P99 are
compared round by round, the memory of all processes after each round. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from bireme.errors import BiremeError, ServerError
from bireme.requests import read_requests
from bireme.server.preload import INSTALL, preload
from bireme.server.process import TritonServer
from bireme.spec import BuildSpec, read_spec
from bireme.verify.verify import read_vocabularies
from bireme_runtime.plan import Plan
from building import build_apart
from comparison import METRICS, Case, order
from driver import LoadProcess, Window
from files import write_figure, write_json
from machine import describe
from plot import BETTER, NEUTRAL
from processes import roles
from ratios import paired, spread
from soak import sizes
from tables import ratio_text
from traffic import make_traffic
from wire import encode

SYSTEM, JEMALLOC = "system", "jemalloc"
_CANDIDATES = (10, 80, 320)
_REQUESTS = 64  # different ones for each of them
_console = Console(stderr=True)


@dataclasses.dataclass
class Side:
    """One allocator: the windows of its rounds, and the memory of server and Python processes after each."""

    windows: list[Window] = dataclasses.field(default_factory=list)
    rss: list[dict[str, int]] = dataclasses.field(default_factory=list)


def measure(
    spec: BuildSpec, repository: Path, clients: int, rounds: int, seconds: float
) -> tuple[dict[str, Side], str]:
    """Serve twice, drive in turn.

    Returns:
        Allocator → its rounds; and which library it was.

    Raises:
        ServerError: there is no jemalloc, or a process does not have it.
    """
    chosen = preload(os.environ, True)
    environments = {SYSTEM: {"LD_PRELOAD": ""}, JEMALLOC: dict(chosen.environment)}
    messages = _messages(spec, repository)
    sides = {name: Side() for name in environments}
    with ExitStack() as stack:
        servers, loads, processes = {}, {}, {}
        for name, environment in environments.items():
            server = stack.enter_context(TritonServer(repository, environment=environment))
            assert server.pid is not None
            servers[name], processes[name] = server, roles(server.pid)
            for pid in processes[name]:
                if _has_jemalloc(pid) != (name == JEMALLOC):
                    raise ServerError(f"process {pid}", f"has not the {name} allocator", INSTALL)
            loads[name] = stack.enter_context(LoadProcess(server.grpc_url, processes[name]))
            loads[name].prepare(spec.model, messages)
        for round_ in range(rounds):
            for name in order(list(sides), round_):
                sides[name].windows.append(loads[name].drive(spec.model, clients, seconds))
                now = {role: sizes(pid)["Rss"] for pid, role in processes[name].items()}
                sides[name].rss.append(now)
            _console.print(f"round {round_ + 1} of {rounds}", style="dim")
        for server in servers.values():
            server.check()
    return sides, chosen.line


def _has_jemalloc(pid: int) -> bool:
    return "libjemalloc" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")


def _messages(spec: BuildSpec, repository: Path) -> list[bytes]:
    folder = repository / f"{spec.model}_preprocess" / "1"
    plan = Plan.read(folder / "plan.json")
    words = read_vocabularies(plan, folder)
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    made = [make_traffic(plan, words, recorded, min(n, plan.buckets[-1]), _REQUESTS) for n in _CANDIDATES]
    return [
        encode(spec.model, plan.features, request) for turn in zip(*made, strict=True) for request in turn
    ]


def summary(sides: Mapping[str, Side]) -> dict[str, Any]:
    """Ratios (above 1: jemalloc is better) and the memory of all processes, as JSON values."""
    case = Case(0, 0, JEMALLOC, {name: side.windows for name, side in sides.items()})
    ratios = {metric: case.ratio(metric, SYSTEM) for metric in METRICS}
    totals = {name: [sum(one.values()) for one in side.rss] for name, side in sides.items()}
    ratios["rss"] = spread(paired(totals[SYSTEM], totals[JEMALLOC]))
    return {
        "ratios": {metric: dataclasses.asdict(ratio) for metric, ratio in ratios.items()},
        "text": {metric: ratio_text(ratio) for metric, ratio in ratios.items()},
        "rss_mb": {name: [round(total / 1e6, 2) for total in line] for name, line in totals.items()},
        "cpu_ms": {
            name: median(METRICS["cpu"][0](window) for window in side.windows) for name, side in sides.items()
        },
        "rounds": {
            name: {"windows": [dataclasses.asdict(window) for window in side.windows], "rss": side.rss}
            for name, side in sides.items()
        },
    }


def draw(result: Mapping[str, Any], machine: Mapping[str, Any]) -> Figure:
    """CPU time a request of each round, and the memory after it."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, color in ((SYSTEM, NEUTRAL), (JEMALLOC, BETTER)):
        windows = result["rounds"][name]["windows"]
        cpu = [1e3 * sum(window["cpu"].values()) / window["requests"] for window in windows]
        rounds = range(1, len(cpu) + 1)
        left.plot(rounds, cpu, "o-", color=color, label=name)
        right.plot(rounds, result["rss_mb"][name], "o-", color=color, label=name)
    left.set_title(f"CPU ms a request: {result['text']['cpu']} times better", fontsize=10, loc="left")
    right.set_title(
        f"RSS of all processes, MB: {result['text']['rss']} times better", fontsize=10, loc="left"
    )
    for panel in (left, right):
        panel.set_ylim(0, 1.1 * panel.dataLim.y1)
        panel.set_xlabel("round")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    figure.supxlabel(f"{machine['processor']}, {machine['cores']} cores", fontsize=9)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="build spec (YAML)")
    parser.add_argument("--out", type=Path, required=True, help="JSON; a PNG goes beside it")
    parser.add_argument("--repository", type=Path, help="built from it; left out: build it")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args(arguments)
    try:
        spec = read_spec(given.spec)
        machine = describe()
        with tempfile.TemporaryDirectory(prefix="bireme-jemalloc-") as folder:
            repository = given.repository or build_apart(given.spec, Path(folder) / "repository")
            sides, library = measure(spec, repository, given.clients, given.rounds, given.seconds)
    except BiremeError as error:
        _console.print(f"{error.where}: {error.message}\n  → {error.hint}", markup=False)
        return error.exit_code
    machine["load_after"] = describe()["load"]
    result = summary(sides)
    settings = {"clients": given.clients, "rounds": given.rounds, "seconds": given.seconds}
    for metric, text in result["text"].items():
        print(f"{metric}: jemalloc is {text} times better")
    for name, line in result["rss_mb"].items():
        print(
            f"RSS of all processes, {name}: {line[0]:.0f} MB after the first round, {line[-1]:.0f} at the end"
        )
    name = Path(library.split(",")[0]).name
    write_json(given.out, {"machine": machine, "settings": settings, "library": name, **result})
    write_figure(given.out.with_suffix(".png"), draw(result, machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
