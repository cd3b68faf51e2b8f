"""The served ensemble against what a user would otherwise do: the whole SavedModel in one Python model.

    python perf/compare.py --spec examples/obd/bireme.yaml --out perf/results/compare.json
    python perf/compare.py --reference --out perf/results/compare_reference.json

Builds the ensemble, puts the same model in the fused layout, the ensemble without its network (the floor) and
the baseline beside it into the same repository, starts one tritonserver on all, checks that they give the
same scores, and then drives them in turn, round by round: only the one that is driven uses the processor. At
last the requests come at a rate that the baseline can just bear. Prints ratios, writes JSON and a picture of
the same name.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from agreement import require_equal
from apart import start_apart
from baseline.repository import Setting, whole_name, write_whole
from bireme.errors import BiremeError
from bireme.requests import read_requests
from bireme.server.preload import preload
from bireme.server.process import TritonServer
from bireme.spec import BuildSpec, read_spec
from bireme.verify.verify import read_vocabularies
from bireme_runtime.plan import Plan
from comparison import METRICS, Case, as_data, order
from driver import LoadProcess, Window
from files import write_figure, write_json
from machine import describe
from plot import draw
from prepared import REPOSITORY, SPEC, prepare
from processes import roles
from reference_model import ROWS, write_model
from tables import context_table, ratio_table
from traffic import make_traffic
from variants import FLOOR, FUSED, write_floor
from wire import encode

TOLERANCE = 1e-5
_REQUESTS = 64  # different ones for each N
_BEARABLE = 0.8  # share of the requests that the baseline answers in a closed loop
_PATIENCE = 600.0  # seconds for several TensorFlows to load on a busy machine
_WIDTH = 130  # columns that the tables need, also where there is no terminal
_console = Console(stderr=True)


def compare(
    spec: BuildSpec,
    repository: Path,
    settings: Sequence[Setting],
    candidates: Sequence[int],
    clients: Sequence[int],
    rounds: int,
    seconds: float,
    cores: int = 0,
) -> tuple[list[Case], float]:
    """Serve all, check their scores, drive them in turn.

    Args:
        spec: the ensemble's build spec.
        repository: holds the emitted ensemble, and the fused model if there is one; the floor and the
            baseline are added.
        settings: variants of the baseline.
        candidates: every N to measure.
        clients: every number of clients to measure.
        rounds: how often each model is driven in each case.
        seconds: how long each time.
        cores: so many for the server, the others for the clients, as if these were other machines; 0: the
            server and its clients share all.

    Returns:
        One case for every N and number of clients, and one for every N at a rate that the baseline, as it was
        with most clients, can just bear; and the largest difference of two scores.

    Raises:
        VerifyError: the scores differ.
        BiremeError: whatever else is missing.
    """
    variants = [
        write_whole(spec, spec.saved_model, repository, setting, f"{whole_name(spec.model)}_{setting}")
        for setting in settings
    ]
    fused = f"{spec.model}_{FUSED}"
    beside = (*([fused] if (repository / fused).is_dir() else []), write_floor(repository, spec.model))
    models = [spec.model, *beside, *variants]
    # As `bireme serve` starts it.
    server = TritonServer(repository, environment=preload(os.environ).environment)
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        start_apart(lambda: server.start(_PATIENCE), cores)
        assert server.pid is not None
        with LoadProcess(server.grpc_url, roles(server.pid)) as load:
            difference = _prepare(load, spec, repository, models, candidates)
            tuned = tuple(name for name, s in zip(variants, settings, strict=True) if s.once)
            cases = [
                dataclasses.replace(case, beside=beside, tuned=tuned)
                for case in _closed(load, spec.model, models, candidates, clients, rounds, seconds)
            ]
            cases += [_open(load, case, rounds, seconds) for case in cases if case.clients == max(clients)]
            server.check()
    return cases, difference


def _closed(
    load: LoadProcess,
    ensemble: str,
    models: Sequence[str],
    candidates: Sequence[int],
    clients: Sequence[int],
    rounds: int,
    seconds: float,
) -> list[Case]:
    """Every N with every number of clients, each of which waits for its answer."""
    windows: dict[tuple[int, int, str], list[Window]] = {}
    for round_ in range(rounds):
        for n in candidates:
            for count in clients:
                _console.print(f"round {round_ + 1} of {rounds}: N = {n}, {count} clients", style="dim")
                for model in order(models, round_):
                    window = load.drive((model, n), count, seconds)
                    windows.setdefault((n, count, model), []).append(window)
    return [
        Case(n, count, ensemble, {model: windows[n, count, model] for model in models})
        for n in candidates
        for count in clients
    ]


def _open(load: LoadProcess, closed: Case, rounds: int, seconds: float) -> Case:
    """The same requests at a rate that the fastest variant of the baseline can just bear."""
    rate = _BEARABLE * closed.middle(closed.baseline, METRICS["throughput"][0])
    models = [*closed.ours, *closed.baselines]
    windows: dict[str, list[Window]] = {model: [] for model in models}
    for round_ in range(rounds):
        _console.print(f"round {round_ + 1} of {rounds}: N = {closed.candidates}, {rate:.0f}/s", style="dim")
        for model in order(models, round_):
            windows[model].append(load.pace((model, closed.candidates), rate, seconds, round_))
    return dataclasses.replace(closed, clients=0, rounds=windows, rate=rate)


def _prepare(
    load: LoadProcess, spec: BuildSpec, repository: Path, models: Sequence[str], candidates: Sequence[int]
) -> float:
    """Hand over the requests, and refuse to go on unless all models give the same scores."""
    folder = repository / f"{spec.model}_preprocess" / "1"
    plan = Plan.read(folder / "plan.json")
    words = read_vocabularies(plan, folder)
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    difference = 0.0
    for n in candidates:
        requests = make_traffic(plan, words, recorded, n, _REQUESTS)
        for model in models:
            load.prepare((model, n), [encode(model, plan.features, request) for request in requests])
        expected = load.ask((spec.model, n))
        for model in models[1:]:
            if model == f"{spec.model}_{FLOOR}":  # zeros
                continue
            found = load.ask((model, n))
            difference = max(difference, require_equal(spec.model, expected, model, found, TOLERANCE))
    return difference


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except BiremeError as error:
        _console.print(f"[bold red]compare:[/] {escape(error.where)}: {escape(error.message)}")
        if error.hint:
            _console.print(f"  → {escape(error.hint)}")
        return error.exit_code
    return 0


def _run(options: Any) -> None:
    machine = describe()
    machine["allocator"] = Path(preload(os.environ).environment.get("LD_PRELOAD", "the system's")).name
    with tempfile.TemporaryDirectory(prefix="bireme-compare-") as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / REPOSITORY).is_dir():
            with _console.status("building the ensemble"):
                path = write_model(folder / "model", options.rows) if options.reference else options.spec
                prepare(path, folder, options.cores)
        if options.prepare:
            return
        spec, repository = read_spec(folder / SPEC), folder / REPOSITORY
        cases, difference = compare(
            spec,
            repository,
            options.baseline or [Setting.parse(text) for text in _baselines(options.reference)],
            options.candidates,
            options.clients,
            options.rounds,
            options.seconds,
            options.cores,
        )
    machine["load_after"] = describe()["load"]
    out = Console(width=max(_WIDTH, _console.width))
    out.print(ratio_table(cases), context_table(cases))
    out.print(f"largest difference of two scores: {difference:.1e} (tolerance {TOLERANCE:g})")
    settings = {name: getattr(options, name) for name in ("rounds", "seconds", "cores")}
    settings["requests"] = _REQUESTS
    result = {
        "machine": machine,
        "settings": settings,
        "largest_difference": difference,
        "cases": [as_data(case) for case in cases],
    }
    write_json(options.out, result)
    picture = options.out.with_suffix(".png")
    write_figure(picture, draw(cases, machine, options.rounds, options.seconds))
    out.print(f"written: {options.out}, {picture}")


def _baselines(reference: bool) -> Sequence[str]:
    """Variants of the baseline that may be the fastest."""
    return ("1x1", "2x1", "1x1o", "2x1o") if reference else ("1x1", "2x1")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(f"{value} is not positive")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--spec", type=Path, default=Path("examples/obd/bireme.yaml"), help="build spec (YAML)"
    )
    parser.add_argument("--reference", action="store_true", help="the model of reference_model.py instead")
    parser.add_argument("--rows", type=_positive, default=ROWS, help="rows of each of its tables")
    parser.add_argument(
        "--candidates", type=_positive, nargs="+", default=[80, 500], help="every N to measure"
    )
    parser.add_argument(
        "--clients", type=_positive, nargs="+", default=[1, 4], help="parallel clients to measure"
    )
    parser.add_argument("--rounds", type=_positive, default=5, help="how often each is driven in each case")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each time")
    parser.add_argument(
        "--baseline",
        type=Setting.parse,
        nargs="+",
        help="variants of the baseline, INSTANCESxTHREADS, with dynamic batching if 'm' follows, with a"
        " signature that takes the user once if 'o' follows; each case is compared with its fastest",
    )
    parser.add_argument(
        "--cores",
        type=int,
        default=0,
        help="so many for the server, the others for the clients; 0: all for both",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="what is served; built there if it is not there yet; default: a temporary one",
    )
    parser.add_argument("--prepare", action="store_true", help="only build what --folder shall hold")
    parser.add_argument(
        "--out", type=Path, default=Path("perf/results/compare.json"), help="JSON; a PNG goes beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
