"""How fast rows are gathered from memory of different kinds of pages.

    python perf/micro/page_kinds.py --out perf/results/page_kinds.json

The same arena, in files and copies, in small and in huge pages; numpy's `take` gathers random rows of 64
bytes from each in turn. The file's 4 KB pages lie one after the other in memory, which some processors make
use of; those of a copy lie where there was room, as those of a file do on older kernels. The last kind is
memory that only this process has: what sharing costs in speed. Prints CPU time, writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from bireme_runtime import shared_copy
from bireme_runtime.local_store import open_arena
from bireme_runtime.pages import COLLAPSE, HUGEPAGE, read_usage
from bireme_runtime.pages import Mapping as Pages
from bireme_runtime.tables import Arena
from files import write_figure, write_json
from machine import describe
from ratios import Spread, paired, spread

Array = np.ndarray[Any, Any]

_WIDTH = 16  # float32: a row is a line of the processor's cache
_ROWS = 10_500  # of a request, see the reference request of the hot path
_NO_HUGE_PAGES = 15  # madvise
FILE_4K, FILE_HUGE = "file, contiguous 4 KB pages", "file, huge pages"
COPY_4K, COPY_HUGE = "copy, scattered 4 KB pages", "copy, huge pages"
PRIVATE = "private, huge pages"
KINDS = (FILE_4K, COPY_4K, FILE_HUGE, COPY_HUGE, PRIVATE)
_COLORS = ("#b2182b", "#e08214", "#1b7837", "#2166ac", "#888888")


@contextmanager
def kinds_of(path: Path, size: int) -> Iterator[tuple[dict[str, Array], dict[str, float]]]:
    """An arena of random bytes in all kinds of memory.

    Args:
        path: the file to make.
        size: bytes, a multiple of a row's.

    Yields:
        Kind → float32 [rows, width]; kind → share of it in huge pages.
    """
    chunk = np.random.default_rng(0).integers(0, 2**30, 1 << 18, np.uint32).tobytes()
    with path.open("wb") as file:
        for first in range(0, size, len(chunk)):
            file.write(chunk[: size - first])
    rows = size // (4 * _WIDTH)
    arena = Arena(path, "float32", _WIDTH, rows, size)
    with ExitStack() as stack, path.open("rb") as source:
        stack.callback(path.unlink)
        opened = open_arena(arena, "file")
        mappings = {FILE_4K: Pages(source.fileno(), size)}
        mappings[FILE_4K].advise(_NO_HUGE_PAGES)
        for kind, prepare in ((COPY_4K, _small), (COPY_HUGE, _huge)):
            copy = shared_copy.make(source.fileno(), size, prepare)
            mappings[kind] = Pages(copy, size, keep=True)
        private = _aligned(rows)
        private[:] = opened.rows
        for mapping in mappings.values():
            mapping.touch()
        found = {kind: arena.over(mapping.bytes) for kind, mapping in mappings.items()}
        found |= {FILE_HUGE: opened.rows, PRIVATE: private}
        shares = {kind: _share(array) for kind, array in found.items()}
        yield {kind: found[kind] for kind in KINDS}, shares


def measure(arrays: Mapping[str, Array], repeats: int, calls: int) -> dict[str, list[float]]:
    """CPU time of gathering one request's rows, all kinds in turn.

    Args:
        arrays: kind → [rows, width].
        repeats: how often everything is measured.
        calls: of each kind in one repeat; their median counts.

    Returns:
        Kind → µs, one a repeat.
    """
    rng = np.random.default_rng(1)
    rows = len(next(iter(arrays.values())))
    out = np.empty((_ROWS, _WIDTH), np.float32)
    costs: dict[str, list[float]] = {kind: [] for kind in arrays}
    for _ in range(repeats):
        times: dict[str, list[int]] = {kind: [] for kind in arrays}
        for _ in range(calls):
            for kind, array in arrays.items():
                ids = rng.integers(0, rows, _ROWS)  # fresh ones: else the cache has the rows
                started = time.process_time_ns()
                array.take(ids, axis=0, out=out, mode="clip")
                times[kind].append(time.process_time_ns() - started)
        for kind in arrays:
            costs[kind].append(median(times[kind]) / 1e3)
    return costs


def _aligned(rows: int) -> Array:
    """Memory of this process, for which numpy asks for huge pages by itself, from a 64-byte boundary on."""
    memory = np.empty(4 * _WIDTH * (rows + 1), np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + 4 * _WIDTH * rows].view(np.float32).reshape(rows, _WIDTH)


def _small(mapping: Pages) -> None:
    mapping.advise(_NO_HUGE_PAGES)


def _huge(mapping: Pages) -> None:
    mapping.advise(HUGEPAGE)
    usage = mapping.usage()
    if usage is not None and usage.resident:
        mapping.advise(COLLAPSE)


def _share(array: Array) -> float:
    """Share of an array in huge pages."""
    smaps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    return min(1.0, read_usage(smaps, array.ctypes.data, array.nbytes).huge / array.nbytes)


def draw(sizes: Sequence[int], costs: Sequence[Mapping[str, Spread]], machine: Mapping[str, Any]) -> Figure:
    """CPU time of a request's rows over the arena's size: a line a kind, a band for the repeats' range."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    panel = figure.subplots()
    megabytes = [size / 2**20 for size in sizes]
    for kind, color in zip(KINDS, _COLORS, strict=True):
        of_kind = [cost[kind] for cost in costs]
        style = "--" if kind == PRIVATE else "-"
        panel.plot(megabytes, [c.median for c in of_kind], f"o{style}", color=color, ms=4, label=kind)
        panel.fill_between(
            megabytes,
            [c.lowest for c in of_kind],
            [c.highest for c in of_kind],
            color=color,
            alpha=0.15,
            lw=0,
        )
    panel.set_xscale("log", base=2)
    panel.set_xticks(megabytes, [f"{m:g}" for m in megabytes])
    panel.set_ylim(bottom=0)
    panel.set_xlabel("size of the arena, MiB")
    panel.set_ylabel(f"CPU time of {_ROWS:,} random rows, µs")
    panel.set_title("Gathering rows of 64 bytes (numpy take) by kind of page", fontsize=11)
    panel.grid(alpha=0.3)
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(
        f"median and range of the repeats · {machine['processor']}, {machine['cores']} cores, "
        f"Linux {machine['kernel']}",
        fontsize=9,
    )
    return figure


def _table(sizes: Sequence[int], costs: Sequence[Mapping[str, Spread]], gains: Sequence[Spread]) -> Table:
    table = Table(title=f"CPU µs of {_ROWS:,} rows (lowest–highest)")
    table.add_column("MiB", justify="right")
    for kind in KINDS:
        table.add_column(kind, justify="right")
    table.add_column("scattered 4 KB / file, huge", justify="right")
    for size, cost, gain in zip(sizes, costs, gains, strict=True):
        cells = [f"{cost[k].median:.0f} ({cost[k].lowest:.0f}–{cost[k].highest:.0f})" for k in KINDS]
        cells.append(f"{gain.median:.2f} ({gain.lowest:.2f}–{gain.highest:.2f})")
        table.add_row(f"{size / 2**20:g}", *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON; a PNG goes beside it")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16, 32, 64, 256, 1024], help="MiB")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--calls", type=int, default=30)
    given = parser.parse_args(arguments)
    machine, sizes = describe(), [size << 20 for size in given.sizes]
    costs: list[dict[str, list[float]]] = []
    shares: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(dir=given.out.absolute().parent) as folder:
        for size in sizes:
            with kinds_of(Path(folder) / "arena.bin", size) as (arrays, share):
                costs.append(measure(arrays, given.repeats, given.calls))
                shares.append(share)
    spreads = [{kind: spread(values) for kind, values in cost.items()} for cost in costs]
    gains = [spread(paired(cost[COPY_4K], cost[FILE_HUGE])) for cost in costs]
    write_json(
        given.out,
        {
            "machine": machine,
            "rows": _ROWS,
            "cases": [
                {"bytes": size, "microseconds": cost, "huge_share": share, "gain": vars(gain)}
                for size, cost, share, gain in zip(sizes, costs, shares, gains, strict=True)
            ],
        },
    )
    write_figure(given.out.with_suffix(".png"), draw(sizes, spreads, machine))
    Console(width=150).print(_table(sizes, spreads, gains))
    return 0


if __name__ == "__main__":
    sys.exit(main())
