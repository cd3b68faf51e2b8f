"""How the cost of `preprocess` grows with the number of candidates.

    python perf/micro/preprocess_slope.py --spec examples/obd/bireme.yaml

Measures the runtime itself, without a server, beside three other things, in turn: merely moving arrays of
that size, merely turning the strings into Python objects, and the same transforms in a loop over rows of such
objects. Prints costs and slopes, writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

import numpy as np
from rich.console import Console
from rich.table import Table
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from bireme.errors import VerifyError
from bireme.requests import read_requests, to_tensors
from bireme.spec import BuildSpec, read_spec
from bireme.verify.verify import read_vocabularies
from bireme_runtime.library import load
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.wire import Payload, WireStrings
from files import write_figure, write_json
from machine import describe
from micro.arrays import BareArrays
from micro.line import Line, fit
from micro.plot import draw
from micro.rows import RowLoop
from ratios import Spread, spread
from traffic import make_traffic

Costs = dict[str, list[list[float]]]
Ready = Callable[[], Callable[[], Any]]
"""Makes a request ready; what it returns handles it, and is what is measured."""

ARRAYS, RUNTIME, OBJECTS, ROWS = "bare arrays", "preprocess", "strings to objects", "row loop"
_COUNTS = (1, 20, 80, 160, 320, 512)
_WIDTH = 110  # columns that the table needs, also where there is no terminal
_REQUESTS = 8  # different ones for each N


def measure(methods: Mapping[str, Sequence[Sequence[Ready]]], repeats: int, calls: int) -> Costs:
    """CPU time of one call, all methods in turn.

    Args:
        methods: method → for each N, different requests.
        repeats: how often everything is measured.
        calls: how many calls of each method and N in one repeat; their median counts.

    Returns:
        Method → repeat → µs for each N.
    """
    sizes = range(len(next(iter(methods.values()))))
    costs: Costs = {name: [] for name in methods}
    for _ in range(repeats):
        for name in methods:
            costs[name].append([])
        for size in sizes:
            times: dict[str, list[int]] = {name: [] for name in methods}
            for call in range(calls):
                for name, runs in methods.items():
                    run = runs[size][call % len(runs[size])]()
                    started = time.process_time_ns()
                    run()
                    times[name].append(time.process_time_ns() - started)
            for name in methods:
                costs[name][-1].append(median(times[name]) / 1e3)
    return costs


def lines(counts: Sequence[int], costs: Sequence[Sequence[float]]) -> tuple[Spread, Spread]:
    """Spread over the repeats of the fixed cost (µs) and of the slope (ns a candidate)."""
    fitted: list[Line] = [fit(counts, row) for row in costs]
    return spread([line.fixed for line in fitted]), spread([1e3 * line.slope for line in fitted])


def prepare(spec: BuildSpec, repository: Path) -> dict[str, list[list[Ready]]]:
    """The methods on the same requests; runtime and row loop are checked to give the same blocks.

    Raises:
        VerifyError: the row loop and the runtime differ.
    """
    folder = repository / f"{spec.model}_preprocess" / "1"
    preprocessor = Preprocessor.open(folder, library=load()[0], reuse=True)
    arrays, loop = BareArrays(folder), RowLoop(folder)
    plan = preprocessor.plan

    def handle(tensors: Mapping[str, Any]) -> Any:
        return preprocessor.run([tensors])[0]

    words = read_vocabularies(plan, folder)
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    methods: dict[str, list[list[Ready]]] = {ARRAYS: [], RUNTIME: [], OBJECTS: [], ROWS: []}
    for n in _COUNTS:
        calls: dict[str, list[Ready]] = {name: [] for name in methods}
        for number, request in enumerate(make_traffic(plan, words, recorded, n, _REQUESTS)):
            tensors = to_tensors(plan.features, request)
            _require_equal(f"request {number} of N = {n}", handle(_as_sent(tensors)), loop.run(tensors))
            bare = arrays.prepare(tensors)
            calls[ARRAYS].append(partial(partial, arrays.run, *bare))
            calls[RUNTIME].append(partial(partial, handle, _as_sent(tensors)))
            texts = [array.payload for array in _as_sent(tensors).values() if isinstance(array, WireStrings)]
            calls[OBJECTS].append(partial(partial, _to_objects, texts))
            calls[ROWS].append(partial(_ready, loop.run, tensors))
        for name in methods:
            methods[name].append(calls[name])
    return methods


def _as_sent(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What the runtime gets in a server: strings that are still in the form in which they travel."""
    sent = dict(tensors)
    for name, array in tensors.items():
        if array.dtype == np.object_:
            raw = serialize_byte_tensor(array).item() if array.size else b""
            sent[name] = Payload(np.frombuffer(raw, np.uint8)).reshape(array.shape)
    return sent


def _to_objects(texts: Sequence[Any]) -> None:
    """What Triton's Python backend does with strings unless it is told otherwise; a row loop needs it."""
    for payload in texts:
        deserialize_bytes_tensor(payload)


def _ready(run: Callable[[Any], Any], tensors: Mapping[str, Any]) -> Callable[[], Any]:
    """A call with strings made anew, as a server makes them: Python remembers the hash of one it knows."""
    fresh = dict(tensors)
    for name, array in tensors.items():
        if array.dtype == np.object_:
            fresh[name] = np.array([bytes(bytearray(text)) for text in array.flat], object).reshape(
                array.shape
            )
    return partial(run, fresh)


def _require_equal(where: str, found: Any, expected: tuple[Any, Any]) -> None:
    if not isinstance(found, Features):
        raise VerifyError(where, f"the runtime refuses it: {found}", "see perf/traffic.py")
    for name, ours, theirs in zip(("user", "items"), (found.user, found.items), expected, strict=True):
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-5, atol=1e-6):
            raise VerifyError(
                where, f"'{name}' of the runtime and of the row loop differ", "one of the two is wrong"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    from bireme.build import build  # TensorFlow

    spec, machine, console = read_spec(options.spec), describe(), Console(width=_WIDTH)
    with tempfile.TemporaryDirectory(prefix="bireme-slope-") as folder:
        repository = Path(folder) / "repository"
        build(options.spec, repository)
        costs = measure(prepare(spec, repository), options.repeats, options.calls)
    lines_of = {name: lines(_COUNTS, rows) for name, rows in costs.items()}
    slopes = {name: slope for name, (_, slope) in lines_of.items()}
    spreads = {name: [spread(column) for column in zip(*rows, strict=True)] for name, rows in costs.items()}
    console.print(_table(spreads, lines_of))
    write_json(
        options.out,
        {
            "machine": machine,
            "candidates": _COUNTS,
            "microseconds": costs,
            "fixed_microseconds": {name: vars(fixed) for name, (fixed, _) in lines_of.items()},
            "nanoseconds_per_candidate": {name: vars(slope) for name, slope in slopes.items()},
        },
    )
    picture = options.out.with_suffix(".png")
    write_figure(picture, draw(_COUNTS, spreads, slopes, machine))
    console.print(f"written: {options.out}, {picture}")
    return 0


def _table(costs: Mapping[str, Sequence[Spread]], lines_of: Mapping[str, tuple[Spread, Spread]]) -> Table:
    table = Table(
        "", title="CPU time of one request, µs, and of one more candidate, ns", title_justify="left"
    )
    for n in _COUNTS:
        table.add_column(f"N = {n}", justify="right")
    for heading in ("slope, ns", "range", "× bare arrays"):
        table.add_column(heading, justify="right")
    least = lines_of[ARRAYS][1].median
    for name, cost in costs.items():
        slope = lines_of[name][1]
        table.add_row(
            name,
            *(f"{entry.median:.0f}" for entry in cost),
            f"{slope.median:.0f}",
            f"{slope.lowest:.0f}–{slope.highest:.0f}",
            f"{slope.median / least:.1f}",
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--spec", type=Path, default=Path("examples/obd/bireme.yaml"), help="build spec (YAML)"
    )
    parser.add_argument("--repeats", type=int, default=9, help="how often everything is measured")
    parser.add_argument("--calls", type=int, default=32, help="calls of each method and N in one repeat")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("perf/results/preprocess_slope.json"),
        help="JSON; a PNG goes beside it",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
