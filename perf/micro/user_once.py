"""What computing the user side once saves in the dense network, in ONNX Runtime on one thread.

    python perf/micro/user_once.py

Four Keras models, with their features and tables, are compiled as `bireme build` does it. The row-wise ONNX
that comes out of the conversion, fed with user rows that are repeated for every candidate already, is timed
in turn with the one that user_once makes of it. The compiled feature plan serves the request, and both must
give the SavedModel's scores. Prints ratios, operations and differences; writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

import numpy as np
import onnx
import onnxruntime
from rich.console import Console
from rich.table import Table

from bireme.compiler.acceptance import boundary_feeds
from bireme.compiler.load import SavedModel, fill_unused
from bireme.compiler.pipeline import compile_model
from bireme.compiler.rows.costs import bytes_per_request, flops_per_request
from bireme.compiler.tables.export import read_words
from bireme.errors import VerifyError
from bireme.requests import to_rows, to_tensors
from bireme.spec import BuildSpec
from bireme.synthetic import make_requests
from bireme_runtime.plan import Side
from bireme_runtime.preprocessor import Features, Preprocessor
from files import write_figure, write_json
from machine import describe
from micro.user_once_models import MODELS, Network, with_random_weights
from micro.user_once_plot import draw
from ratios import paired, spread

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]
#: Largest difference of two scores: sums in another order.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Pair:
    """A network before and after user_once, and one request for both.

    Args:
        rowwise: inputs are the boundaries, dim 0 is the row.
        lifted: inputs `user` and `items`.
        widths: columns of either side.
        feeds: what the compiled feature plan makes of the request: (row-wise, lifted).
        scores: task → the SavedModel's own scores of it.
    """

    rowwise: onnx.ModelProto
    lifted: onnx.ModelProto
    widths: Mapping[Side, int]
    feeds: tuple[Feeds, Feeds]
    scores: Feeds


def compile_network(network: Network, candidates: int, seed: int = 0) -> Pair:
    """Export a Keras network, compile it, and serve one made-up request up to the dense network."""
    with tempfile.TemporaryDirectory(prefix="bireme-user-once-") as folder:
        saved_model, files = Path(folder) / "saved_model", Path(folder) / "files"
        files.mkdir()
        network.model.export(str(saved_model), verbose=False)
        spec = BuildSpec(model="m", saved_model=saved_model, user=network.user, buckets=(candidates,))
        compiled = compile_model(spec, "cpu", scratch=files)
        plan = compiled.plan
        (request,) = make_requests(plan, read_words(compiled.split), [candidates], seed)
        (half,) = Preprocessor.open(files).run([to_tensors(plan.features, request)])
        if not isinstance(half, Features):
            raise half
        model = SavedModel(saved_model)
        scores = model.predict(fill_unused(model, to_rows(plan.features, request)))
    return Pair(
        compiled.rowwise,
        compiled.dense,
        {"user": plan.user_width, "item": plan.item_width},
        (boundary_feeds(compiled.split, half), {"user": half.user, "items": half.items}),
        scores,
    )


def require_equal(name: str, rowwise: Sequence[Array], lifted: Sequence[Array]) -> float:
    """The largest difference of two scores.

    Raises:
        VerifyError: it is larger than the order of sums explains.
    """
    differences = [
        float(np.abs(a.reshape(-1) - b.reshape(-1)).max()) for a, b in zip(rowwise, lifted, strict=True)
    ]
    if not max(differences) <= TOLERANCE:
        raise VerifyError(name, f"scores differ by {max(differences):.1e}", "user_once changed a result")
    return max(differences)


def measure(
    runs: Sequence[tuple[onnxruntime.InferenceSession, Feeds]], rounds: int, calls: int
) -> list[list[float]]:
    """Milliseconds of CPU time of a call in each round, both in turn, the first of a round alternating.

    One call before each timing brings weights back into the caches that the other side has used.
    """
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        order = list(range(len(runs)))
        for index in order if number % 2 else order[::-1]:
            session, feeds = runs[index]
            session.run(None, feeds)
            start = time.thread_time()
            for _ in range(calls):
                session.run(None, feeds)
            times[index].append((time.thread_time() - start) / calls * 1e3)
    return times


def open_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime on the calling thread, with all of its own optimisations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def compare(name: str, network: Network, candidates: int, rounds: int, calls: int) -> dict[str, Any]:
    """All numbers of one network, as JSON values."""
    pair = compile_network(network, candidates)
    models = (pair.rowwise, pair.lifted)
    runs = [(open_session(model), feed) for model, feed in zip(models, pair.feeds, strict=True)]
    rowwise, lifted = (
        dict(zip((out.name for out in session.get_outputs()), session.run(None, feed), strict=True))
        for session, feed in runs
    )
    difference = max(
        require_equal(name, list(wanted.values()), [lifted[task] for task in wanted])
        for wanted in (rowwise, pair.scores)
    )
    times = measure(runs, rounds, calls)
    flops = [flops_per_request(model, candidates) for model in models]
    moved = [bytes_per_request(model, candidates) for model in models]
    return {
        "network": network.note,
        "user_width": pair.widths["user"],
        "item_width": pair.widths["item"],
        "milliseconds": {"rowwise": times[0], "user_once": times[1]},
        "ratio": vars(spread(paired(*times))),
        "flops": {"rowwise": flops[0], "user_once": flops[1]},
        "activation_bytes": {"rowwise": moved[0], "user_once": moved[1]},
        "max_difference": difference,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    machine, console = describe(), Console(width=110)
    results = {
        name: compare(
            name, with_random_weights(MODELS[name]()), options.candidates, options.rounds, options.calls
        )
        for name in options.models
    }
    console.print(_table(results, options.candidates))
    write_json(options.out, {"machine": machine, "candidates": options.candidates, "networks": results})
    picture = options.out.with_suffix(".png")
    write_figure(picture, draw(results, options.candidates, machine))
    console.print(f"written: {options.out}, {picture}")
    return 0


def _table(results: Mapping[str, Any], candidates: int) -> Table:
    title = f"Dense network, one thread, 1 user, N = {candidates}: CPU ms, median of the rounds"
    table = Table("", title=title, title_justify="left")
    columns = (
        "row-wise", "user once", "times faster", "range", "MFLOP", "× fewer", "MB moved", "difference",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for name, result in results.items():
        times = [spread(values).median for values in result["milliseconds"].values()]
        ratio, flops = result["ratio"], list(result["flops"].values())
        table.add_row(
            name,
            *(f"{value:.2f}" for value in times),
            f"{ratio['median']:.2f}",
            f"{ratio['lowest']:.2f}–{ratio['highest']:.2f}",
            " → ".join(f"{value / 1e6:.0f}" for value in flops),
            f"{flops[0] / flops[1]:.2f}",
            " → ".join(f"{value / 1e6:.0f}" for value in result["activation_bytes"].values()),
            f"{result['max_difference']:.0e}",
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which networks")
    parser.add_argument("--candidates", type=int, default=500, help="N")
    parser.add_argument("--rounds", type=int, default=21, help="how often both sides are timed")
    parser.add_argument("--calls", type=int, default=8, help="calls of a side in one round")
    parser.add_argument(
        "--out", type=Path, default=Path("perf/results/user_once.json"), help="JSON; a PNG goes beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
