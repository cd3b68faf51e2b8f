"""How long a build takes and how much memory: the example, and a model with hundreds of features.

    python perf/build_bench.py --spec examples/obd/bireme.yaml --out perf/results/build.json

Every build is a process of its own. Time counts from the end of TensorFlow's import. Memory is sampled from
outside: RssAnon, which only this process has and which cannot be dropped, and VmRSS, which also counts pages
of mapped files (TensorFlow's libraries, tables). VmHWM is the kernel's own maximum of VmRSS. Fails if a
build with large tables takes longer, or more memory by VmHWM, than it may.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from files import write_json
from machine import describe
from ratios import spread

_PERF = Path(__file__).parent
_LARGE = 1 << 28  # bytes of tables from which on memory is compared with them: TensorFlow alone takes that
_EVERY = 0.02  # seconds between two looks at the memory
_MOST_SECONDS = 180.0
_MOST_MEMORY = 1.5  # VmHWM over bytes of tables
_console = Console(stderr=True)


@dataclass(frozen=True)
class Build:
    """One measured build.

    Args:
        seconds: from the end of the imports to the end.
        passes: pass → seconds.
        anonymous: pass → largest RssAnon in bytes.
        resident: pass → largest VmRSS in bytes.
        found: what the process said of itself (see build_probe.py).
        load: average number of runnable processes when it began.
    """

    seconds: float
    passes: dict[str, float]
    anonymous: dict[str, int]
    resident: dict[str, int]
    found: dict[str, Any]
    load: float


def measure(spec: Path) -> Build:
    """Run one build and watch it.

    Raises:
        RuntimeError: it fails; with the end of what it said.
    """
    load = float(Path("/proc/loadavg").read_text(encoding="ascii").split()[0])
    with (
        tempfile.TemporaryDirectory(dir=spec.parent) as folder,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        command = [sys.executable, str(_PERF / "build_probe.py"), str(spec), str(Path(folder) / "repository")]
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        samples: list[tuple[float, int, int]] = []
        while process.poll() is None:
            samples.append((time.monotonic(), *memory(process.pid)))
            time.sleep(_EVERY)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(errors.read().decode(errors="replace")[-2000:])
        found = json.loads(output.read().splitlines()[-1])
    return summarise(found, samples, load)


def memory(pid: int) -> tuple[int, int]:
    """RssAnon and VmRSS of a process in bytes; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0, 0
    found = dict(line.split(":", 1) for line in text.splitlines())
    anonymous, resident = (int(found.get(key, "0").split()[0]) << 10 for key in ("RssAnon", "VmRSS"))
    return anonymous, resident


def summarise(found: dict[str, Any], samples: Sequence[tuple[float, int, int]], load: float) -> Build:
    """Passes with their times and their share of the samples. Pure.

    Args:
        found: what the process printed; its passes end with "end".
        samples: (seconds, RssAnon, VmRSS) in order.
        load: see `Build`.
    """
    passes: dict[str, float] = {}
    anonymous: dict[str, int] = {}
    resident: dict[str, int] = {}
    for (name, begun), (_, ended) in zip(found["passes"], found["passes"][1:], strict=False):
        passes[name] = ended - begun
        mine = [sample for sample in samples if begun <= sample[0] < ended]
        anonymous[name] = max((sample[1] for sample in mine), default=0)
        resident[name] = max((sample[2] for sample in mine), default=0)
    total = found["passes"][-1][1] - found["passes"][1][1]
    return Build(total, passes, anonymous, resident, found, load)


def as_data(name: str, builds: Sequence[Build]) -> dict[str, Any]:
    """One case as JSON values: medians over its builds, and the spread of the totals."""
    first = builds[0].found
    total = spread([build.seconds for build in builds])
    peak = max(max(build.anonymous.values()) for build in builds)
    high = max(build.found["high_water"] for build in builds)
    tables = first["table_bytes"]
    return {
        "case": name,
        "builds": len(builds),
        "features": first["features"],
        "tables": first["tables"],
        "table_bytes": tables,
        "largest_table_bytes": first["largest_table_bytes"],
        "seconds": {"median": total.median, "lowest": total.lowest, "highest": total.highest},
        "load": [build.load for build in builds],
        "passes": {
            key: {
                "seconds": spread([build.passes[key] for build in builds]).median,
                "anonymous_bytes": max(build.anonymous[key] for build in builds),
                "resident_bytes": max(build.resident[key] for build in builds),
            }
            for key in builds[0].passes
        },
        "anonymous_peak_bytes": peak,
        "high_water_bytes": high,
        "imported_bytes": first["base"],
        "anonymous_peak_over_tables": peak / tables,
        "high_water_over_tables": high / tables,
    }


def missed(case: dict[str, Any]) -> list[str]:
    """What a case takes more of than it may; only large tables have limits."""
    if case["table_bytes"] <= _LARGE:
        return []
    seconds, ratio = case["seconds"]["median"], case["high_water_over_tables"]
    faults = []
    if seconds >= _MOST_SECONDS:
        faults.append(f"{case['case']}: {seconds:.0f} s, {_MOST_SECONDS:.0f} are allowed")
    if ratio >= _MOST_MEMORY:
        faults.append(f"{case['case']}: VmHWM is {ratio:.2f} × the tables, {_MOST_MEMORY} are allowed")
    return faults


def show(cases: Sequence[dict[str, Any]]) -> Table:
    """What was measured, for a terminal."""
    table = Table(title="bireme build, after TensorFlow's import")
    for column in (
        "case",
        "features",
        "tables",
        "MB",
        "seconds (lowest–highest)",
        "RssAnon",
        "/ tables",
        "VmHWM",
        "/ tables ",
    ):
        table.add_column(column)
    for case in cases:
        seconds = case["seconds"]
        table.add_row(
            case["case"],
            str(case["features"]),
            str(case["tables"]),
            f"{case['table_bytes'] / 1e6:.1f}",
            f"{seconds['median']:.1f} ({seconds['lowest']:.1f}–{seconds['highest']:.1f})",
            f"{case['anonymous_peak_bytes'] / 1e6:.0f} MB",
            f"{case['anonymous_peak_over_tables']:.2f}" if case["table_bytes"] > _LARGE else "",
            f"{case['high_water_bytes'] / 1e6:.0f} MB",
            f"{case['high_water_over_tables']:.2f}" if case["table_bytes"] > _LARGE else "",
        )
    return table


def make_large(folder: Path, features: int, gigabytes: float, single: bool) -> Path:
    """A large model in a process of its own, since this one should stay small; returns its spec."""
    command = [sys.executable, str(_PERF / "build_model.py"), "--out", str(folder)]
    command += ["--features", str(features), "--gigabytes", str(gigabytes)]
    subprocess.run([*command, *(["--single"] if single else [])], check=True, capture_output=True)
    return folder / "bireme.yaml"


def main() -> None:
    """Measure the example and large models, print and write what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="the example's spec")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of 2^30 bytes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--single", action="store_true", help="also a model with nearly all bytes in one table"
    )
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    needed, free = 5 * given.gigabytes * 2**30, shutil.disk_usage(tempfile.gettempdir()).free
    if free < needed:
        sys.exit(
            f"needs {needed / 1e9:.0f} GB of free disk in {tempfile.gettempdir()}, which has {free / 1e9:.0f}"
        )
    cases = []
    kinds = [
        ("example", None),
        ("many tables", False),
        *([("one large table", True)] if given.single else []),
    ]
    for name, single in kinds:
        with tempfile.TemporaryDirectory() as folder:
            spec = given.spec
            if single is not None:
                _console.print(f"{name}: making the model")
                spec = make_large(Path(folder), given.features, given.gigabytes, single)
            builds = []
            for number in range(given.repeats):
                _console.print(f"{name}: build {number + 1} of {given.repeats}")
                builds.append(measure(spec))
            cases.append(as_data(name, builds))
            write_json(given.out, {"machine": describe(), "cases": cases})
    Console(width=140).print(show(cases))
    faults = [fault for case in cases for fault in missed(case)]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
