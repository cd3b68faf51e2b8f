"""How many processes and threads: one ensemble served with several numbers of instances, against one of each.

    python perf/instances.py --spec examples/obd/bireme.yaml --out perf/results/instances.json

One tritonserver holds the variants, PREPROCESS+DNNxTHREADS; they are driven in turn, forwards and backwards,
so that only one of them works at a time. `4+8n` has a DNN that costs nothing: what is left is the CPU's work
beside a GPU. Prints and draws ratios to the first variant of the same kind of DNN, and writes JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from agreement import require_equal
from bireme.requests import read_requests
from bireme.server.process import TritonServer
from bireme.spec import BuildSpec, read_spec
from bireme.verify.verify import read_vocabularies
from bireme_runtime.plan import Plan
from building import build_apart
from comparison import METRICS, Case, cpu_per_request, order
from driver import LoadProcess, Window
from files import write_figure, write_json
from instances_plot import draw
from instances_variants import Variant, write_variant
from machine import describe
from processes import roles
from tables import ratio_text
from traffic import make_traffic
from wire import encode

TOLERANCE = 1e-5
_REQUESTS = 64  # different ones for each N
_WIDTH = 150
_VARIANTS = ("1+1x1", "2+1x1", "4+1x1", "1+1x2", "2+1x2", "1+2x1", "2+2x1", "1+4n", "2+4n", "4+4n")
_console = Console(stderr=True)

Rounds = Mapping[tuple[int, int], Mapping[Variant, Sequence[Window]]]


def measure(
    spec: BuildSpec,
    repository: Path,
    variants: Sequence[Variant],
    candidates: Sequence[int],
    clients: Sequence[int],
    rounds: int,
    seconds: float,
    loaders: int = 1,
) -> Rounds:
    """Serve all variants, check that they give the same scores, drive them in turn.

    Args:
        spec: the ensemble's build spec: its name and samples.
        repository: holds the emitted ensemble (cpu target); the variants are added.
        variants: what to serve.
        candidates: every N to measure.
        clients: every number of clients to measure.
        rounds: how often each variant is driven in each case.
        seconds: how long each time.
        loaders: processes that generate the load; one of them can send as much as one core allows.

    Returns:
        (N, clients) → variant → one window a round.

    Raises:
        VerifyError: the scores of two variants differ.
        BiremeError: whatever else is missing.
    """
    names = {variant: write_variant(repository, spec.model, variant) for variant in variants}
    found: dict[tuple[int, int], dict[Variant, list[Window]]] = {
        (n, count): {variant: [] for variant in variants} for n in candidates for count in clients
    }
    with TritonServer(repository) as server, ExitStack() as stack:
        assert server.pid is not None
        processes = roles(server.pid)
        loads = [stack.enter_context(LoadProcess(server.grpc_url, processes)) for _ in range(loaders)]
        _prepare(loads, spec, repository, names, candidates)
        with ThreadPoolExecutor(loaders) as pool:
            for round_ in range(rounds):
                for n, count in found:
                    _console.print(f"round {round_ + 1} of {rounds}: N = {n}, {count} clients", style="dim")
                    for name in order(list(names.values()), round_):
                        jobs = [
                            pool.submit(load.drive, (name, n), part, seconds)
                            for load, part in zip(loads, shares(count, loaders), strict=True)
                            if part
                        ]
                        window = merged([job.result() for job in jobs])
                        variant = next(v for v in variants if names[v] == name)
                        found[n, count][variant].append(window)
        server.check()
    return found


def shares(clients: int, loaders: int) -> list[int]:
    """Clients of each load generator, as equal as can be; the first ones have more."""
    return [clients // loaders + (index < clients % loaders) for index in range(loaders)]


def merged(windows: Sequence[Window]) -> Window:
    """What several load generators saw at the same time, as one.

    Each of them counted the same processes, so that their CPU times are averaged and not added; the longest
    P99 stands for all of them.
    """
    role_names = windows[0].cpu
    seconds = fmean(window.seconds for window in windows)
    client = sum(window.client for window in windows)
    return Window(
        requests=sum(window.requests for window in windows),
        seconds=seconds,
        p50=fmean(window.p50 for window in windows),
        p99=max(window.p99 for window in windows),
        cpu={role: fmean(window.cpu[role] for window in windows) for role in role_names},
        client=client,
        # Each one took the other generators for others.
        others=max(0.0, fmean(window.others + window.client for window in windows) - client),
    )


def base_of(variant: Variant, variants: Sequence[Variant]) -> Variant:
    """What a variant is compared with: the first one with the same kind of DNN."""
    return next(other for other in variants if bool(other.threads) == bool(variant.threads))


def _prepare(
    loads: Sequence[LoadProcess],
    spec: BuildSpec,
    repository: Path,
    names: Mapping[Variant, str],
    candidates: Sequence[int],
) -> None:
    folder = repository / f"{spec.model}_preprocess" / "1"
    plan = Plan.read(folder / "plan.json")
    words = read_vocabularies(plan, folder)
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    for n in candidates:
        requests = make_traffic(plan, words, recorded, n, _REQUESTS)
        for load in loads:
            for name in [spec.model, *names.values()]:
                load.prepare((name, n), [encode(name, plan.features, request) for request in requests])
        expected = loads[0].ask((spec.model, n))
        for variant, name in names.items():
            answers = loads[0].ask((name, n))
            if variant.threads:
                require_equal(spec.model, expected, name, answers, TOLERANCE)


def summary(found: Rounds) -> list[dict[str, Any]]:
    """Every case and variant: ratios to its base, and all rounds, as JSON values."""
    rows = []
    for (n, count), rounds in found.items():
        by_name = {str(variant): windows for variant, windows in rounds.items()}
        for variant, windows in rounds.items():
            base = base_of(variant, list(rounds))
            case = Case(n, count, str(variant), by_name)
            ratios = {metric: case.ratio(metric, str(base)) for metric in METRICS}
            rows.append(
                {
                    "candidates": n,
                    "clients": count,
                    "variant": str(variant),
                    "base": str(base),
                    "ratios": {metric: dataclasses.asdict(ratio) for metric, ratio in ratios.items()},
                    "text": {metric: ratio_text(ratio) for metric, ratio in ratios.items()},
                    "requests_per_second": case.middle(str(variant), METRICS["throughput"][0]),
                    "p99_ms": case.middle(str(variant), METRICS["p99"][0]),
                    "cpu_ms": {role: _middle(windows, role) for role in _parts(windows[0])},
                    "rounds": [dataclasses.asdict(window) for window in windows],
                }
            )
    return rows


def _parts(window: Window) -> list[str]:
    return sorted({_part(role) for role in cpu_per_request(window)})


def _part(role: str) -> str:
    """server, preprocess or dnn."""
    return role.rpartition("_")[2]


def _middle(windows: Sequence[Window], part: str) -> float:
    spent = [
        sum(ms for role, ms in cpu_per_request(window).items() if _part(role) == part) for window in windows
    ]
    return fmean(spent)


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="times better than the variant of the column `against` (above 1: better)")
    columns = ("N", "clients", "variant", "throughput", "p99", "CPU", "against", "per s", "CPU ms a request")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        text = row["text"]
        parts = ", ".join(f"{part} {ms:.2f}" for part, ms in row["cpu_ms"].items() if ms >= 0.02)
        table.add_row(
            str(row["candidates"]),
            str(row["clients"]),
            row["variant"],
            text["throughput"],
            text["p99"],
            text["cpu"],
            row["base"],
            f"{row['requests_per_second']:.0f}",
            parts,
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="build spec (YAML)")
    parser.add_argument("--out", type=Path, required=True, help="JSON; a PNG goes beside it")
    parser.add_argument("--repository", type=Path, help="built from it, and added to; left out: build it")
    parser.add_argument(
        "--variants", type=Variant.parse, nargs="+", default=[Variant.parse(text) for text in _VARIANTS]
    )
    parser.add_argument("--candidates", type=int, nargs="+", default=[500], help="every N to measure")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--loaders", type=int, default=1, help="processes that generate the load")
    given = parser.parse_args(arguments)
    spec = read_spec(given.spec)
    machine = describe()
    with tempfile.TemporaryDirectory(prefix="bireme-instances-") as folder:
        repository = given.repository or build_apart(given.spec, Path(folder) / "repository")
        found = measure(
            spec,
            repository,
            given.variants,
            given.candidates,
            given.clients,
            given.rounds,
            given.seconds,
            given.loaders,
        )
    machine["load_after"] = describe()["load"]
    rows = summary(found)
    out = Console(width=max(_WIDTH, _console.width))
    out.print(_table(rows))
    settings = {"rounds": given.rounds, "seconds": given.seconds, "loaders": given.loaders}
    write_json(given.out, {"machine": machine, "settings": settings, "cases": rows})
    write_figure(given.out.with_suffix(".png"), draw(rows, machine, settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
