"""How much memory the tables take with several instances, whether they lie in huge pages, and what is left.

    python perf/memory.py --out perf/results/memory.json

Builds a model with 2 GB of tables (or takes the repository of one), serves it on a real tritonserver with
four instances of `preprocess`, once for each policy of huge pages, sends requests, reads /proc/PID/smaps of
the instances, and kills everything with SIGKILL to see what stays in memory. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.errors import VerifyError
from bireme.server.process import TritonServer
from bireme.server.stubs import live_stubs
from bireme.verify.verify import read_vocabularies
from bireme_runtime.local_store import VARIABLE
from bireme_runtime.plan import Plan
from build_bench import make_large
from driver import LoadProcess, Window
from files import write_figure, write_json
from machine import describe
from maps import copies_in_memory, memory_of
from memory_plot import draw
from processes import roles
from traffic import make_traffic
from wire import decode, encode

LIMIT = 1.15
"""Sum of the instances' PSS over the tables' bytes must be below it."""
MODEL = "large"
INSTANCES = 4
POLICIES = ("auto", "copy", "off")
_CANDIDATES, _REQUESTS = 256, 64
_SHARED = Path("/dev/shm")


def serve(repository: Path, policy: str, clients: int, seconds: float) -> dict[str, Any]:
    """Serve with one policy, under load, and end it by SIGKILL.

    Returns:
        As JSON values: the log's lines, memory of the instances in bytes, the load, the scores of the first
        request, and what was left after the kill and after `TritonServer.stop`.
    """
    plan = Plan.read(repository / f"{MODEL}_preprocess" / "1" / "plan.json")
    arenas = {table.arena for table in plan.tables}
    before = _shared_memory()
    with _environment(VARIABLE, policy), tempfile.TemporaryDirectory() as folder:
        server = TritonServer(repository, log=Path(folder) / "server.log", exit_timeout=0)
        began = time.monotonic()
        try:
            server.start()
            ready = time.monotonic() - began
            assert server.pid is not None
            processes = roles(server.pid)
            instances = [pid for pid, role in processes.items() if role == f"{MODEL}_preprocess"]
            if len(instances) != INSTANCES:
                raise VerifyError(MODEL, f"has {len(instances)} instances", "see its config.pbtxt")
            window, scores = _load(server, processes, plan, repository, clients, seconds)
            memory = [memory_of(pid, arenas) for pid in instances]
            notes = _notes(Path(folder) / "server.log")
            held = copies_in_memory(_arenas(repository))
            left = _kill(server.pid, processes, before)
        finally:
            server.stop()
    return {
        "policy": policy,
        "ready_seconds": ready,
        "notes": notes,
        "instances": [dataclasses.asdict(one) for one in memory],
        "window": dataclasses.asdict(window),
        "scores": scores,
        "killed": left
        | {
            "copies_before": held,
            "copies_left": copies_in_memory(_arenas(repository)),
            "regions_after_stop": sorted(_shared_memory() - before),
        },
    }


def summarise(found: dict[str, Any], tables: int) -> dict[str, Any]:
    """What counts, of one policy. Pure.

    Args:
        found: as `serve` gives it.
        tables: bytes of all tables.
    """
    instances = found["instances"]
    share = sum(one["share"] for one in instances)
    return {
        "share_bytes": share,
        "share_over_tables": share / tables,
        "table_share_bytes": sum(one["table_share"] for one in instances),
        "anonymous_bytes": sum(one["anonymous"] for one in instances),
        # A copy ends with a whole huge page, a little after the tables.
        "least_huge_share": min(1.0, min(one["table_huge"] for one in instances) / tables),
    }


def prepare(repository: Path) -> int:
    """Give `preprocess` its instances; returns the bytes of the tables."""
    path = repository / f"{MODEL}_preprocess" / "config.pbtxt"
    head, text = path.read_text(encoding="utf-8").split("\n", 1)
    config = text_format.Parse(text, ModelConfig())
    config.instance_group[0].count = INSTANCES
    path.write_text(f"{head}\n{text_format.MessageToString(config)}", encoding="utf-8")
    return sum(file.stat().st_size for file in _arenas(repository))


def _arenas(repository: Path) -> list[Path]:
    return sorted((repository / f"{MODEL}_preprocess" / "1").glob("arena_*.bin"))


def _load(
    server: TritonServer,
    processes: dict[int, str],
    plan: Plan,
    repository: Path,
    clients: int,
    seconds: float,
) -> tuple[Window, list[float]]:
    words = read_vocabularies(plan, repository / f"{MODEL}_preprocess" / "1")
    requests = make_traffic(plan, words, [], _CANDIDATES, _REQUESTS)
    with LoadProcess(server.grpc_url, processes) as load:
        load.prepare(MODEL, [encode(MODEL, plan.features, request) for request in requests])
        (scores,) = decode(load.ask(MODEL)[0]).values()
        return load.drive(MODEL, clients, seconds), [float(score) for score in scores.reshape(-1)]


def _kill(server: int, processes: dict[int, str], before: set[str]) -> dict[str, Any]:
    """Kill the server and all its processes at once; what is then left of them."""
    for pid in {server, *processes, *live_stubs(f"bireme_{os.getpid()}_")}:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while live_stubs(f"bireme_{os.getpid()}_") and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # until the kernel has freed what they had
    regions = sorted(_shared_memory() - before)
    return {
        "tables_in_shared_memory_left": [
            name for name in regions if "triton" not in name and "arena" in name
        ],
        "regions_of_triton_left": regions,
        "region_bytes_left": sum((_SHARED / name).stat().st_size for name in regions),
    }


def _shared_memory() -> set[str]:
    """Regions of servers that this process started, whatever others do."""
    return {path.name for path in _SHARED.iterdir() if path.name.startswith(f"bireme_{os.getpid()}_")}


def _notes(log: Path) -> list[str]:
    """What the instances say of their arenas."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return re.findall(rf'"({MODEL}_preprocess_\d+_\d+: arena_[^"]*)"', text)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _make(folder: Path, gigabytes: float) -> Path:
    """A large model and its repository, each made by a process of its own."""
    spec = make_large(folder, 15, gigabytes, single=False)
    code = "import sys, pathlib, bireme.build as b; b.build(*map(pathlib.Path, sys.argv[1:]))"
    repository = folder / "repository"
    subprocess.run([sys.executable, "-c", code, str(spec), str(repository)], check=True, capture_output=True)
    shutil.rmtree(folder / "saved_model")
    return repository


def _read(repository: Path) -> None:
    """Bring the arenas into the system's cache, from which a copy has dropped them."""
    for path in _arenas(repository):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def _show(results: Sequence[dict[str, Any]], tables: int) -> Table:
    table = Table(title=f"{INSTANCES} instances, {tables / 1e9:.2f} GB of tables")
    for column in ("policy", "ready", "sum of PSS", "/ tables", "in huge pages", "after SIGKILL"):
        table.add_column(column)
    for one in results:
        killed, sums = one["killed"], one["summary"]
        left = f"{len(killed['copies_left'])} copies, {len(killed['regions_after_stop'])} regions"
        table.add_row(
            one["policy"],
            f"{one['ready_seconds']:.1f} s",
            f"{sums['share_bytes'] / 1e6:.0f} MB",
            f"{sums['share_over_tables']:.3f}",
            f"{sums['least_huge_share']:.1%}",
            left,
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON; a PNG goes beside it")
    parser.add_argument("--repository", type=Path, help="of a model made by perf/build_model.py; is changed")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of 2^30 bytes")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="of load for each policy")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        repository = given.repository or _make(Path(folder), given.gigabytes)
        tables = prepare(repository)
        results = []
        for policy in POLICIES:
            if policy == "off":
                _read(repository)
            found = serve(repository, policy, given.clients, given.seconds)
            results.append(found | {"summary": summarise(found, tables)})
    if not all(np.array_equal(one.pop("scores"), results[0].get("scores", [])) for one in results[1:]):
        raise VerifyError(MODEL, "scores depend on where the tables lie", "this is a fault of bireme")
    results[0].pop("scores")
    machine = describe()
    write_json(given.out, {"machine": machine, "table_bytes": tables, "limit": LIMIT, "policies": results})
    write_figure(given.out.with_suffix(".png"), draw(results, tables, LIMIT, machine))
    Console(width=130).print(_show(results, tables))
    failed = [one["policy"] for one in results if not _passed(one)]
    print(json.dumps({"failed": failed}))
    return 1 if failed else 0


def _passed(one: dict[str, Any]) -> bool:
    killed = one["killed"]
    clean = not killed["copies_left"] and not killed["regions_after_stop"]
    return clean and one["summary"]["share_over_tables"] < LIMIT


if __name__ == "__main__":
    sys.exit(main())
