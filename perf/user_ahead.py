"""Ten slices of 500 candidates: the user with every slice, or once ahead of all; predicted and measured.

    python perf/user_ahead.py --spec examples/obd/bireme.yaml --out perf/results/user_ahead.json

For the model of the spec and for one with a heavy user side (heavy_user.py): builds with --user-ahead and
notes the share of CPU time that the report predicts; then measures that share without a server, on one
thread, and served by a tritonserver (CPU time of the server and its models' processes, and latency). The ways
take turns and must give the same scores within 1e-6. Prints, writes JSON and a picture of the same name.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

from ahead_paths import InProcess, Paths, Served, User
from ahead_plot import draw
from ahead_shares import SLICES, shares, table
from bireme.errors import VerifyError
from bireme.requests import Request, read_requests
from bireme.server.process import TritonServer
from bireme.spec import read_spec
from bireme.verify.verify import read_vocabularies
from bireme_runtime.plan import Plan
from files import write_figure, write_json
from heavy_user import write_model
from machine import describe
from processes import roles, thread_seconds
from traffic import make_traffic

TOLERANCE = 1e-6
CANDIDATES = 500
_console = Console(stderr=True, width=110)


def make_users(
    plan: Plan, words: Mapping[str, Sequence[bytes]], recorded: Sequence[Request], count: int, tag: str
) -> list[User]:
    """Users with SLICES · CANDIDATES candidates each; no two are alike, so none is in a cache by chance.

    Args:
        plan: the one-shot feature plan.
        words: vocabulary file → its keys.
        recorded: sample requests.
        count: how many.
        tag: the same users under another one: other requests, the same work.
    """
    requests = make_traffic(plan, words, recorded, CANDIDATES, count * SLICES, seed=5)
    strings = [f.name for f in plan.features if f.side == "user" and f.dtype == "string" and f.length is None]
    users = []
    for number in range(count):
        mine = requests[number * SLICES : (number + 1) * SLICES]
        alone = {**mine[0]["user"], strings[0]: f"{tag} {number}"}
        users.append(User([{"user": alone, "items": request["items"]} for request in mine]))
    return users


def check_scores(paths: Paths, users: Sequence[User]) -> float:
    """The largest difference of two scores.

    Raises:
        VerifyError: larger than TOLERANCE.
    """
    paths.prepare(users)
    worst = 0.0
    for user in users:
        for one, other in zip(paths.one_shot(user), paths.ahead(user), strict=True):
            worst = max(worst, float(np.abs(one.astype(np.float64) - other).max()))
    if not worst <= TOLERANCE:
        raise VerifyError("user_ahead", f"scores differ by {worst:.3g}", "the two ways are not compared")
    return worst


def take_turns(
    ways: Mapping[str, Callable[[User], Any]],
    users: Mapping[str, Sequence[User]],
    in_each: int,
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    """CPU milliseconds a user of each way, round by round.

    Args:
        ways: name → what to do for one user.
        users: way → its users, as many for each.
        in_each: how many of them a round takes; the first round warms up.
        clock: CPU seconds spent so far.
    """
    spent: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for round_ in range(len(users[names[0]]) // in_each):
        turn = round_ % len(names)
        for name in names[turn:] + names[:turn]:
            begin = clock()
            for user in users[name][round_ * in_each : (round_ + 1) * in_each]:
                ways[name](user)
            if round_:
                spent[name].append(1e3 * (clock() - begin) / in_each)
    return spent


def measure(spec_path: Path, repository: Path, rounds: int, in_each: int) -> dict[str, Any]:
    """One model: prediction, in process, served.

    Args:
        spec_path: its build spec.
        repository: an empty folder.
        rounds: that count; one more warms up.
        in_each: users a round.
    """
    from bireme.build import build  # TensorFlow

    spec = read_spec(spec_path)
    _console.print(f"{spec.model}: building", style="dim")
    section = build(spec_path, repository, user_ahead=True).report["user_ahead"]
    folder = repository / f"{spec.model}_preprocess" / "1"
    plan, words = Plan.read(folder / "plan.json"), read_vocabularies(Plan.read(folder / "plan.json"), folder)
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    count = (rounds + 1) * in_each
    tags = ("one_shot", "ahead", "cached")
    users = {tag: make_users(plan, words, recorded, count, tag) for tag in tags}
    everybody = [user for mine in users.values() for user in mine]
    to_check = make_users(plan, words, recorded, 4, "check")

    _console.print(f"{spec.model}: without a server", style="dim")
    inside = InProcess(repository, spec.model)
    difference = check_scores(inside, to_check)
    inside.prepare(everybody)
    ways = {"one_shot": inside.one_shot, "ahead": inside.ahead}
    in_process = take_turns(ways, users, in_each, time.process_time)

    _console.print(f"{spec.model}: served", style="dim")
    with TritonServer(repository) as server:
        assert server.pid is not None
        served = Served(server.grpc_url, repository, spec.model)
        difference = max(difference, check_scores(served, to_check))
        served.prepare(everybody)
        served.latencies.clear()
        processes = roles(server.pid)
        ways = {"one_shot": served.one_shot, "ahead": served.ahead, "cached": served.cached}
        over_the_wire = take_turns(ways, users, in_each, lambda: thread_seconds(processes))
        served.close()
        server.check()
    return {
        "model": spec.model,
        "user_width": plan.user_width,
        "item_width": plan.item_width,
        "report": section,
        "max_difference": difference,
        "in_process_ms": in_process,
        "served_ms": over_the_wire,
        "latency_ms": {kind: median(times) for kind, times in served.latencies.items()},
        "shares": shares(section["cpu_milliseconds"], in_process, over_the_wire),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    options = _parser().parse_args(arguments)
    machine, results = describe(), []
    with tempfile.TemporaryDirectory(prefix="bireme-ahead-") as folder:
        specs = [options.spec]
        if not options.only:
            _console.print("heavy: making the model", style="dim")
            specs.append(write_model(Path(folder) / "heavy"))
        for number, spec in enumerate(specs):
            results.append(measure(spec, Path(folder) / f"repository{number}", options.rounds, options.users))
    _console.print(table(results))
    settings = {"slices": SLICES, "candidates": CANDIDATES, "rounds": options.rounds, "users": options.users}
    write_json(options.out, {"machine": machine, "settings": settings, "models": results})
    write_figure(options.out.with_suffix(".png"), draw(results, machine, settings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--spec", type=Path, required=True, help="build spec of the first model")
    parser.add_argument("--only", action="store_true", help="leave the model with the heavy user side out")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--users", type=int, default=8, help="users a round")
    parser.add_argument("--out", type=Path, required=True, help="JSON file; the picture lies beside it")
    return parser


if __name__ == "__main__":
    main()
