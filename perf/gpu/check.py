"""Everything worth doing on a GPU machine in one go, within a budget of seconds.

    python perf/gpu/check.py --prepared build/gpu/prepared --out perf/results --budget 480

Needs no TensorFlow: `prepare.py` has built repositories, requests and TensorFlow's scores where it is. Builds
the engines, runs the tests that need a GPU, proves scores and graph launches, measures, and compares with
what is asked for. Steps run in order of importance; one that no longer fits the budget is skipped, and one
that fails does not stop the others. Each outcome is in OUT/gpu_steps.jsonl as soon as it is known; `--resume`
goes on where that file ends. `--rehearse` does the same without a GPU, on the cpu target.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

from bireme.server.locate import VARIABLE
from files import write_json
from gpu.bench import Bench, Sizes
from gpu.building import build_engine, check_scores, facts, run_tests
from gpu.refresh import refresh
from gpu.serving import BACKENDS, named_server
from gpu.steps import Outcome, Step, from_file, run_steps, say, to_file
from gpu.throughput import ALONE, BEARABLE, REFERENCE, configurations, table_row
from gpu.timeline import record
from gpu.verdicts import judge
from gpu.whole import eager, end_to_end, user_once

__all__ = ["all_steps", "main", "still_there"]

_LOAD = 75.0  # seconds after which a load is given up
_REHEARSED = Sizes(base=64, large=(100, 200), example=20, clients=(1, 2), window_ms=400, instances=2)


def all_steps(bench: Bench) -> list[Step]:
    """The steps in order of importance, with the seconds that each takes on an H200."""
    network, flat, example = (
        () if bench.rehearsal else (f"engine of {w}",) for w in ("network", "flat", "example")
    )
    asked, why = configurations(bench.sizes.instances)

    def row(name: str, chosen: Any) -> Step:
        run = partial(table_row, bench, name, chosen)
        return Step(name, 22 if chosen.offered else 17, lambda left: run(min(left, _LOAD)), network)

    def ends(what: str, candidates: int, left: float, mps: bool = False) -> dict[str, Any]:
        return end_to_end(bench, what, candidates, min(left, _LOAD), mps)

    whole = bench.sizes.base
    return [
        Step("facts", 3, partial(facts, bench)),
        Step("engine of network", 35, partial(build_engine, bench, "network")),
        Step("engine of example", 20, partial(build_engine, bench, "example")),
        Step("GPU tests", 60, partial(run_tests, bench)),
        Step("scores of example", 30, partial(check_scores, bench, "example"), example),
        Step("scores of network", 40, partial(check_scores, bench, "network"), network),
        *(row(name, chosen) for name, chosen in asked.items()),
        Step("eager", 20, lambda left: eager(bench, False, min(left, _LOAD)), network),
        Step("ensemble end to end", 45, partial(ends, "network", whole), network),
        Step("whole model, eager", 20, lambda left: eager(bench, True, min(left, _LOAD)), network),
        Step("engine of flat", 35, partial(build_engine, bench, "flat")),
        Step("user once or not", 50, lambda left: user_once(bench, min(left, _LOAD)), (*network, *flat)),
        Step("timeline", 10, lambda left: record(bench, min(left, _LOAD)), network),
        Step("ensemble end to end, MPS", 50, partial(ends, "network", whole, mps=True), network),
        Step("example end to end", 45, partial(ends, "example", bench.sizes.example), example),
        Step("scores of flat", 40, partial(check_scores, bench, "flat"), flat),
        *(row(name, chosen) for name, chosen in why.items()),
    ]


def summary(outcomes: dict[str, Outcome], bench: Bench) -> dict[str, Any]:
    """What goes into gpu.json: results, verdicts, and what is missing and why; a rehearsal judges nothing."""
    results = {name: outcome.result for name, outcome in outcomes.items() if outcome.status == "done"}
    missing = {name: f"{o.status}: {o.why}" for name, o in outcomes.items() if o.status != "done"}
    seconds = {name: outcome.seconds for name, outcome in outcomes.items()}
    return {
        "results": results,
        "missing": missing,
        "seconds": seconds,
        "order": list(outcomes),
        "verdicts": [] if bench.rehearsal else judge(results, bench.sizes.instances),
    }


def still_there(bench: Bench, step: str) -> bool:
    """Whether what a step made is on this machine: an engine of an earlier one is not."""
    what = step.removeprefix("engine of ")
    return what == step or any(bench.repository(what).glob("*_dnn/1/model.plan"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; 1 if a step failed or a claim did not hold."""
    options = _parser().parse_args(arguments)
    work = options.work or Path(tempfile.mkdtemp(prefix="bireme-gpu-"))
    bench = Bench(options.prepared.absolute(), work.absolute(), "gpu-python")
    if options.rehearse:
        bench = Bench(bench.prepared, bench.work, "cpu", _REHEARSED)
    stem = "gpu_rehearsal" if options.rehearse else "gpu"
    log = options.out / f"{stem}_steps.jsonl"
    if not options.resume:
        log.unlink(missing_ok=True)
    if options.refresh:
        for what in ("network", "flat", "example"):
            say(f"{what}: {refresh(bench.repository(what), bench.target)} files of the runtime replaced")
    if os.environ.get(BACKENDS) and not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = str(named_server(work / "server"))
    before = {
        name: o for name, o in from_file(log).items() if o.status == "done" and still_there(bench, name)
    }
    for name in (REFERENCE, f"{REFERENCE}{ALONE}"):
        if name in before:
            bench.findings[name] = BEARABLE * before[name].result["closed"][0]["requests_per_s"]
    steps = [step for step in all_steps(bench) if step.name not in before]
    if options.only:
        steps = [step for step in steps if any(part in step.name for part in options.only)]
    run_steps(steps, options.budget, to_file(log), before=list(before))
    found = summary(from_file(log), bench)
    write_json(options.out / f"{stem}.json", found)
    for verdict in found["verdicts"]:
        say(f"{verdict['verdict']:>12}: {verdict['claim']}: {verdict['found']} (wanted {verdict['wanted']})")
    if options.keep_logs:
        with tarfile.open(options.keep_logs, "w:gz") as archive:
            archive.add(work / "logs", "logs")
    failed = [name for name, why in found["missing"].items() if why.startswith("failed")]
    bad = [verdict for verdict in found["verdicts"] if verdict["verdict"] == "fail"]
    say(f"written: {options.out / f'{stem}.json'}; {len(failed)} steps failed, {len(bad)} claims do not hold")
    return 1 if failed or bad else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prepared", type=Path, default=Path("build/gpu/prepared"), help="by prepare.py")
    parser.add_argument("--out", type=Path, default=Path("perf/results"), help="folder for the results")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds")
    parser.add_argument(
        "--work", type=Path, help="folder for repositories and logs; default: a temporary one"
    )
    parser.add_argument("--only", nargs="+", help="only steps whose names hold one of these")
    parser.add_argument("--resume", action="store_true", help="keep the results of an earlier run")
    parser.add_argument(
        "--refresh", action="store_true", help="first put this tree's runtime into the repositories"
    )
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, on the cpu target")
    parser.add_argument("--keep-logs", type=Path, help="a .tar.gz for the logs of all steps")
    return parser


if __name__ == "__main__":
    sys.exit(main())
