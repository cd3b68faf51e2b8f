"""Minutes at full load: does the memory of the server and its Python processes stay flat, and what is left?

    python perf/soak.py --spec examples/obd/bireme.yaml --minutes 10 --out perf/results/soak.json

Builds the model, serves it, keeps several clients busy without a pause, and looks at the memory of every
process twice a second. Flat means: a line through the RSS after the first fifth of the time, for each role
and for all together, rises by less than LIMIT, its 95 % confidence included. Writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from bireme.requests import read_requests
from bireme.server.process import TritonServer
from bireme.spec import BuildSpec, read_spec
from bireme.verify.verify import read_vocabularies
from bireme_runtime.plan import Plan
from building import build_apart
from drift import Drift, drift_of
from driver import LoadProcess, Window
from files import write_figure, write_json
from machine import describe
from maps import copies_in_memory
from processes import roles
from traffic import make_traffic
from wire import encode

LIMIT = 1.0
"""MB a minute: more than that would be 1.4 GB a day."""
ALL = "all together"
_CANDIDATES = (10, 80, 320)  # of the requests: other sizes, other buffers
_REQUESTS = 64  # different ones for each of them
_EVERY = 0.5  # seconds between two looks
_SHARED = Path("/dev/shm")


@dataclass
class Watch:
    """Memory over time.

    Args:
        times: seconds since the load began.
        rss: role → bytes, one for each time.
        pss: role → bytes, one for each time.
    """

    times: list[float] = field(default_factory=list)
    rss: dict[str, list[int]] = field(default_factory=dict)
    pss: dict[str, list[int]] = field(default_factory=dict)

    def look(self, processes: Mapping[int, str], now: float) -> None:
        """Add one sample; a process that has gone counts as 0 (`TritonServer.check` will say that it has)."""
        rss, pss = (dict.fromkeys([*processes.values(), ALL], 0) for _ in range(2))
        for pid, role in processes.items():
            one = sizes(pid)
            for name in (role, ALL):
                rss[name] += one["Rss"]
                pss[name] += one["Pss"]
        self.times.append(now)
        for role in rss:
            self.rss.setdefault(role, []).append(rss[role])
            self.pss.setdefault(role, []).append(pss[role])

    def drifts(self) -> dict[str, Drift]:
        """Role → growth of its RSS in MB a minute."""
        return {
            role: Drift(*(60 / 1e6 * bound for bound in asdict(drift_of(self.times, values)).values()))
            for role, values in self.rss.items()
        }


def sizes(pid: int) -> dict[str, int]:
    """Rss and Pss of a process in bytes, without the cost of listing its mappings."""
    found = {"Rss": 0, "Pss": 0}
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) << 10
    return found


def soak(spec: BuildSpec, repository: Path, clients: int, minutes: float) -> tuple[Watch, Window, list[str]]:
    """Serve under load, and watch.

    Returns:
        The samples, the load, and what is left in shared memory after a clean stop.
    """
    folder = repository / f"{spec.model}_preprocess" / "1"
    plan = Plan.read(folder / "plan.json")
    words = read_vocabularies(plan, folder)
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    counts = [min(n, plan.buckets[-1]) for n in _CANDIDATES]
    requests = [r for n in counts for r in make_traffic(plan, words, recorded, n, _REQUESTS)]
    messages = [
        encode(spec.model, plan.features, requests[i::_REQUESTS][k])
        for i in range(_REQUESTS)
        for k in range(len(counts))
    ]
    watch = Watch()
    with TritonServer(repository, exit_timeout=0) as server:
        assert server.pid is not None
        processes = roles(server.pid)
        with LoadProcess(server.grpc_url, processes) as load:
            load.prepare(spec.model, messages)
            done = threading.Event()
            began = time.monotonic()

            def watching() -> None:
                while not done.wait(_EVERY):
                    watch.look(processes, time.monotonic() - began)

            thread = threading.Thread(target=watching)
            thread.start()
            try:
                # The load generator's warm-up, a fifth on top, is watched as well.
                window = load.drive(spec.model, clients, 60 * minutes / 1.2)
            finally:
                done.set()
                thread.join()
        server.check()
    left = [path.name for path in _SHARED.glob(f"bireme_{os.getpid()}_*")]
    return watch, window, left + copies_in_memory(folder.glob("arena_*.bin"))


def draw(watch: Watch, drifts: Mapping[str, Drift], machine: Mapping[str, Any]) -> Figure:
    """RSS and PSS of each role over time; the title says how much it grows."""
    names = list(watch.rss)
    figure = Figure(figsize=(11, 1.2 + 2.2 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    minutes = [time / 60 for time in watch.times]
    for panel, role in zip(panels, names, strict=True):
        for label, sizes_of, color in (("RSS", watch.rss, "#2166ac"), ("PSS", watch.pss, "#e08214")):
            panel.plot(minutes, [size / 1e6 for size in sizes_of[role]], color=color, lw=1.2, label=label)
        panel.axvspan(minutes[0], minutes[0] + 0.2 * (minutes[-1] - minutes[0]), color="#eeeeee")
        drift = drifts[role]
        panel.set_title(
            f"{role}: {drift.slope:+.2f} MB a minute (95 %: {drift.lowest:+.2f} to {drift.highest:+.2f})",
            fontsize=10,
            loc="left",
        )
        panel.set_ylim(bottom=0)
        panel.set_ylabel("MB")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, ncols=2, loc="lower right")
    panels[-1].set_xlabel("minutes at full load (grey: does not count)")
    figure.supxlabel(f"{machine['processor']}, {machine['cores']} cores", fontsize=9)
    return figure


def _show(drifts: Mapping[str, Drift], watch: Watch, window: Window) -> Table:
    table = Table(title=f"{window.requests} requests, {window.requests / window.seconds:.0f} a second")
    for column in ("process", "RSS, MB", "growth, MB a minute", "95 %"):
        table.add_column(column)
    for role, drift in drifts.items():
        size = f"{watch.rss[role][-1] / 1e6:.0f}"
        table.add_row(role, size, f"{drift.slope:+.3f}", f"{drift.lowest:+.3f} to {drift.highest:+.3f}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; 1 if the memory grows or something is left."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--spec", type=Path, required=True, help="build spec (YAML)")
    parser.add_argument("--out", type=Path, required=True, help="JSON; a PNG goes beside it")
    parser.add_argument("--repository", type=Path, help="built from it; left out: build it")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=4)
    given = parser.parse_args(arguments)
    spec = read_spec(given.spec)
    with tempfile.TemporaryDirectory() as folder:
        repository = given.repository or build_apart(given.spec, Path(folder) / "repository")
        watch, window, left = soak(spec, repository, given.clients, given.minutes)
    drifts, machine = watch.drifts(), describe()
    flat = all(drift.highest < LIMIT for drift in drifts.values())
    write_json(
        given.out,
        {
            "machine": machine,
            "minutes": given.minutes,
            "clients": given.clients,
            "limit_mb_per_minute": LIMIT,
            "flat": flat,
            "left": left,
            "window": asdict(window),
            "growth_mb_per_minute": {role: asdict(drift) for role, drift in drifts.items()},
            "seconds": [round(time, 2) for time in watch.times],
            "rss_bytes": watch.rss,
            "pss_bytes": watch.pss,
        },
    )
    write_figure(given.out.with_suffix(".png"), draw(watch, drifts, machine))
    Console(width=110).print(_show(drifts, watch, window))
    print("flat" if flat else f"not flat: more than {LIMIT:g} MB a minute", "· left:", left or "nothing")
    return 0 if flat and not left else 1


if __name__ == "__main__":
    sys.exit(main())
