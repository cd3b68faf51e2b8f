"""Gather and pool of the reference request: the C kernel against the machine's own limit, numpy and torch.

    make bench-gather

The limit is a loop that reads one word of every cache line of the same rows and does nothing else; it
prefetches as far ahead as suits it best, which is tried out before. numpy indexes feature by feature, pools
and lays the blocks side by side. torch, if it is installed beside the environment, runs `embedding_bag` over
the whole arena. All on one thread, in turn, in huge pages, on requests that differ; what counts are
the ratios of CPU times within a round.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

import numpy as np
from rich.console import Console
from rich.table import Table

from bireme.errors import VerifyError
from bireme.native.compilers import compilers_for
from bireme.native.flags import host_architecture
from bireme.native.library import compile_sources
from bireme_runtime.library import load
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Preprocessor
from files import write_figure, write_json
from machine import describe
from micro.bars import Bars, draw
from micro.reference_plan import CANDIDATES, HISTORIES, ITEMS, USERS, arena_name, reference_plan, requests
from ratios import Spread, paired, spread

Array = np.ndarray[Any, Any]
Method = Callable[[int], Callable[[], Any]]
"""Index of a request → what is measured; whatever has to be laid out before is laid out."""

#: (width, rows, storage, hand-over)
CASES = (
    (16, 1_000_000, "float32", "float32"),
    (32, 1_000_000, "float32", "float32"),
    (16, 1_000_000, "float16", "float16"),
    (16, 10_000_000, "float32", "float32"),
    (32, 10_000_000, "float32", "float32"),
    (16, 10_000_000, "float16", "float16"),
)
LIMIT, KERNEL, NUMPY, TORCH = "limit", "kernel", "numpy", "torch"
_REQUESTS = 64
_WARM = 5  # calls
#: Rows that the limit prefetches: whatever is best is taken.
_AHEAD = (16, 32, 64, 96, 128, 192, 256)
_console = Console(stderr=True, width=110)


def make_arena(width: int, rows: int, dtype: str) -> Array:
    """Random rows, row 0 at a cache line as in a file; numpy asks for huge pages for so large an array."""
    size = rows * width * np.dtype(dtype).itemsize
    room = np.empty(size + 64, np.uint8)
    arena: Array = np.ndarray((rows, width), dtype, room, -room.ctypes.data % 64)
    block = np.random.default_rng(0).normal(0, 1, (min(rows, 100_000), width)).astype(dtype)
    for first in range(0, rows, len(block)):
        arena[first : first + len(block)] = block[: rows - first]
    return arena


class ByNumpy:
    """Feature by feature.

    Args:
        plan: of `reference_plan`, without `whole`.
        arena: [rows, width].
    """

    def __init__(self, plan: Plan, arena: Array) -> None:
        each = plan.tables[0].rows
        self._tables = [arena[i * each : (i + 1) * each] for i in range(len(plan.tables))]
        self._names = [feature.name for feature in plan.features]
        self._dtype = plan.handover

    def __call__(self, request: Mapping[str, Array]) -> tuple[Array, Array]:
        """`user` and `items`."""
        rows = [t[request[n][0]] for t, n in zip(self._tables, self._names, strict=True)]
        users = HISTORIES + USERS
        pooled = [r.sum(axis=0, dtype=np.float32) for r in rows[:HISTORIES]]
        user = np.concatenate([*pooled, *(r[0] for r in rows[HISTORIES:users])])
        items = np.concatenate(rows[users:], axis=1)
        return user.astype(self._dtype, copy=False), items.astype(self._dtype, copy=False)


def arena_rows(plan: Plan, request: Mapping[str, Array]) -> tuple[Array, Array]:
    """All rows that a request reads: int64 [rows] in the arena, feature by feature; how many each has."""
    parts = [request[f.name][0] + t.row_offset for f, t in zip(plan.features, plan.tables, strict=True)]
    return np.concatenate(parts), np.array([part.size for part in parts])


def methods_of(plan: Plan, arena: Array, probe: Any, torch: Any) -> dict[str, Method]:
    """Everything that is compared, checked to give the same.

    Raises:
        VerifyError: the kernel is missing, or gives something else than numpy.
    """
    library, about = load()
    if library is None:
        raise VerifyError("gather", about, "run `bireme kernel`")
    given = requests(plan, _REQUESTS, 1)
    preprocessor = Preprocessor(plan, {plan.tables[0].arena: arena}, {}, library=library, reuse=True)
    kernel, plain = preprocessor.kernel, ByNumpy(plan, arena)
    assert kernel is not None
    prepared = [kernel.prepare(request) for request in given]
    for request in given[:4]:
        found = preprocessor.run([request])[0]
        user, items = plain(request)
        if not (np.allclose(found.user[0], user, atol=2e-2) and np.array_equal(found.items[0], items)):  # type: ignore[union-attr]
            raise VerifyError("gather", "kernel and numpy differ", "one of the two is wrong")
    size = arena.shape[1] * arena.itemsize
    places = [np.ascontiguousarray(arena_rows(plan, request)[0] * size) for request in given]
    lines, base = max(1, size // 64), arena.ctypes.data

    def limit(index: int, ahead: int) -> Callable[[], Any]:
        rows = places[index]
        at = rows.ctypes.data
        return lambda: probe.probe_read(base, at, rows.size, lines, ahead)

    def run_kernel(index: int) -> Callable[[], Any]:
        kernel.lay_out([prepared[index]], [])
        return kernel.call

    tried = {str(ahead): partial(limit, ahead=ahead) for ahead in _AHEAD}
    costs = measure(tried, 3, 20)
    best = min(_AHEAD, key=lambda ahead: min(costs[str(ahead)]))
    methods: dict[str, Method] = {
        LIMIT: partial(limit, ahead=best),
        KERNEL: run_kernel,
        NUMPY: lambda index: lambda: plain(given[index]),
    }
    if torch is not None:
        methods[TORCH] = by_torch(torch, plan, arena, given)
    return methods


def by_torch(torch: Any, plan: Plan, arena: Array, given: Sequence[Mapping[str, Array]]) -> Method:
    """One `embedding_bag` over the arena; a single feature is a bag of one row. Ids are ready as tensors."""
    weight = torch.from_numpy(arena)
    ready = []
    for request in given:
        ids, _ = arena_rows(plan, request)
        histories = sum(request[f.name].size for f in plan.features[:HISTORIES])
        singles = np.arange(histories, ids.size)
        lengths = [request[f.name].size for f in plan.features[:HISTORIES]]
        offsets = np.concatenate([np.cumsum([0, *lengths])[:-1], singles])
        # Candidates in the order of rows, so that what comes out is `items` itself.
        pairs = ids[histories + USERS :].reshape(ITEMS, CANDIDATES).T.reshape(-1)
        ids = np.concatenate([ids[: histories + USERS], pairs])
        ready.append((torch.from_numpy(ids), torch.from_numpy(offsets)))
    bag = torch.nn.functional.embedding_bag
    return lambda index: lambda: bag(ready[index][0], weight, ready[index][1], mode="sum")


def measure(
    methods: Mapping[str, Method], rounds: int, calls: int, threaded: Collection[str] = ()
) -> dict[str, list[float]]:
    """CPU time of one call in µs: method → median of each round.

    A method is called several times on end, milliseconds in all, before it is the next one's turn: so each
    meets the caches as it leaves them itself, as in a server, and a slow second of the machine meets all.

    Args:
        methods: what to measure.
        rounds: medians of each.
        calls: calls of each in a round, after a few that do not count.
        threaded: methods that work in threads of their own. Only theirs is the time of the whole process:
            such threads go on spinning a while, which is not to count for the method that comes next.
    """
    costs: dict[str, list[float]] = {name: [] for name in methods}
    for number in range(rounds):
        for name, method in methods.items():
            clock = time.process_time_ns if name in threaded else time.thread_time_ns
            times = []
            for call in range(_WARM + calls):
                run = method((number * calls + call) % _REQUESTS)
                started = clock()
                run()
                times.append(clock() - started)
            costs[name].append(median(times[_WARM:]) / 1e3)
    return costs


def compile_probe(folder: Path) -> Any:
    """The loop that finds the limit.

    Raises:
        VerifyError: there is no C compiler.
    """
    source = {"probe.c": (Path(__file__).parent / "probe.c").read_bytes()}
    for compiler in compilers_for(host_architecture()):
        path = folder / "probe.so"
        path.write_bytes(compile_sources(compiler, host_architecture(), source))
        library = ctypes.CDLL(str(path))
        library.probe_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3]
        library.probe_read.restype = ctypes.c_uint64
        return library
    raise VerifyError("gather", "there is no C compiler", "apt-get install gcc libc6-dev")


def ratios_of(costs: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    """The ratios that count: of the limit's time to the kernel's, and of the others' to the kernel's."""
    return {
        ("limit ÷ kernel" if name == LIMIT else f"{name} ÷ kernel"): spread(
            paired(costs[name], costs[KERNEL])
        )
        for name in costs
        if name != KERNEL
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    torch = _torch(options.packages)
    machine = describe()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bireme-gather-") as folder:
        probe = compile_probe(Path(folder))
        for width, rows, dtype, handover in CASES:
            rows = min(rows, options.most_rows)
            name = f"{rows / 1e6:g} M rows × {width} {dtype}"
            with _console.status(name):
                plan = reference_plan(width, rows, dtype, handover)
                arena = make_arena(width, rows, dtype)
                methods = methods_of(plan, arena, probe, torch)
                costs = measure(methods, options.rounds, options.calls)
            results.append({"case": name, "arena": arena_name(dtype, width), "microseconds": costs})
    console = Console(width=110)
    spreads = [(entry["case"], ratios_of(entry["microseconds"])) for entry in results]
    console.print(_table(spreads))
    for entry, (_, found) in zip(results, spreads, strict=True):
        entry["ratios"] = {name: vars(value) for name, value in found.items()}
    kernel, _ = load()
    variant = kernel.variant if kernel is not None else ""
    write_json(options.out, {"machine": machine, "variant": variant, "cases": results})
    picture = options.out.with_suffix(".png")
    write_figure(picture, draw([Bars(case, found) for case, found in spreads], machine, "kernel = 1"))
    console.print(f"written: {options.out}, {picture}")
    return 0


def _torch(packages: Path | None) -> Any:
    if packages is not None and packages.is_dir():
        sys.path.append(str(packages))
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        _console.print("torch is not there: measured without it (make bench-gather installs it)")
        return None
    torch.set_num_threads(1)
    return torch


def _table(cases: Sequence[tuple[str, Mapping[str, Spread]]]) -> Table:
    table = Table(
        "arena", title="CPU time ÷ the kernel's, median (range of the rounds)", title_justify="left"
    )
    for name in cases[0][1]:
        table.add_column(name, justify="right")
    for case, found in cases:
        values = [f"{s.median:.2f} ({s.lowest:.2f}–{s.highest:.2f})" for s in found.values()]
        table.add_row(case, *values)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often everything is measured")
    parser.add_argument("--calls", type=int, default=40, help="calls of each method in a round")
    parser.add_argument("--most-rows", type=int, default=10_000_000, help="rows of the largest arena")
    parser.add_argument("--packages", type=Path, default=None, help="folder that torch is installed in")
    parser.add_argument(
        "--out", type=Path, default=Path("perf/results/gather.json"), help="JSON; PNG beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
