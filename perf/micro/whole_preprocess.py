"""The whole preprocess of the reference request: runtime and C kernel against TensorFlow and plain numpy.

    make bench-preprocess

Raw ids are taken modulo the rows of their tables, rows gathered, histories added up, numbers of the
candidates put through a logarithm and standardised. TensorFlow runs a `tf.function` of the same on one
thread; numpy goes feature by feature and either lays two blocks side by side or, as models that take one
input want it, repeats the user for every candidate. What is measured of the runtime is everything from
tensors to features, Python included. In turn, on requests that differ; what counts are the ratios of CPU
times within a round.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

import numpy as np
from rich.console import Console

from bireme.errors import VerifyError
from bireme_runtime.library import load
from bireme_runtime.plan import Feature, Plan
from bireme_runtime.preprocessor import Features, Preprocessor
from files import write_figure, write_json
from machine import describe
from micro.bars import Bars, draw
from micro.gather import Method, make_arena, measure
from micro.reference_plan import CANDIDATES, HISTORIES, ITEMS, USERS, reference_plan, requests
from ratios import Spread, paired, spread

Array = np.ndarray[Any, Any]
RUNTIME, TENSORFLOW, NUMPY, PACKED = "runtime", "TensorFlow", "numpy", "numpy, user repeated"
_REQUESTS = 64
_SINGLES = HISTORIES + USERS
_COLUMNS = _SINGLES + ITEMS


class ByNumpy:
    """Feature by feature.

    Args:
        plan: of `reference_plan`, `whole`.
        arena: [rows, width].
    """

    def __init__(self, plan: Plan, arena: Array) -> None:
        self._each = plan.tables[0].rows
        self._tables = [arena[t.row_offset : t.row_offset + t.rows] for t in plan.tables]
        self._names = [feature.name for feature in plan.features]

    def __call__(self, request: Mapping[str, Array]) -> tuple[Array, Array]:
        """`user` [width] and `items` [candidates, width]."""
        rows = [
            table[request[name][0] % self._each]
            for table, name in zip(self._tables, self._names, strict=False)
        ]
        pooled = [block.sum(axis=0) for block in rows[:HISTORIES]]
        user = np.concatenate([*pooled, *(block[0] for block in rows[HISTORIES:_SINGLES])])
        numbers = [self._number(request[name][0])[:, None] for name in self._names[_COLUMNS:]]
        return user, np.concatenate([*rows[_SINGLES:], *numbers], axis=1)

    def packed(self, request: Mapping[str, Array]) -> Array:
        """[candidates, width of both]."""
        user, items = self(request)
        return np.concatenate([np.tile(user, (CANDIDATES, 1)), items], axis=1)

    @staticmethod
    def _number(values: Array) -> Array:
        return (np.log1p(values) - np.float32(1.5)) * np.float32(0.8)


def by_tensorflow(plan: Plan, arena: Array) -> Callable[[Mapping[str, Any]], Any]:
    """A `tf.function` of named tensors → `user` [1, width], `items` [1, candidates, width]; one thread."""
    import tensorflow as tf

    each = plan.tables[0].rows
    tables = [tf.constant(arena[t.row_offset : t.row_offset + t.rows]) for t in plan.tables]

    def signature(feature: Feature) -> Any:
        kind = tf.float32 if feature.dtype == "float32" else tf.int64
        size = CANDIDATES if feature.side == "item" else None if feature.length is not None else 1
        return tf.TensorSpec([1, size], kind)

    def preprocess(request: Any) -> Any:
        names = [feature.name for feature in plan.features]
        rows = [
            tf.gather(table, tf.math.floormod(request[name], each))
            for table, name in zip(tables, names, strict=False)
        ]
        pooled = [tf.reduce_sum(block, axis=1) for block in rows[:HISTORIES]]
        user = tf.concat([*pooled, *(block[:, 0] for block in rows[HISTORIES:_SINGLES])], axis=1)
        numbers = [((tf.math.log1p(request[name]) - 1.5) * 0.8)[..., None] for name in names[_COLUMNS:]]
        return user, tf.concat([*rows[_SINGLES:], *numbers], axis=2)

    graph: Callable[[Mapping[str, Any]], Any] = tf.function(
        preprocess, input_signature=[{f.name: signature(f) for f in plan.features}]
    )
    return graph


def methods_of(plan: Plan, arena: Array) -> dict[str, Method]:
    """Everything that is compared, checked to give the same.

    Raises:
        VerifyError: the kernel is missing, or results differ.
    """
    library, about = load()
    if library is None:
        raise VerifyError("preprocess", about, "run `bireme kernel`")
    given = requests(plan, _REQUESTS, 2)
    runtime = Preprocessor(plan, {plan.tables[0].arena: arena}, {}, library=library, reuse=True)
    plain, graph = ByNumpy(plan, arena), by_tensorflow(plan, arena)
    import tensorflow as tf

    tensors = [{name: tf.constant(array) for name, array in request.items()} for request in given]
    for request, ready in zip(given[:4], tensors, strict=False):
        found = runtime.run([request])[0]
        assert isinstance(found, Features)
        for user, items in (plain(request), (array.numpy()[0] for array in graph(ready))):
            if not (
                np.allclose(found.user[0], user, atol=1e-4) and np.allclose(found.items[0], items, atol=1e-5)
            ):
                raise VerifyError("preprocess", "two of the ways differ", "one of them is wrong")
    return {
        RUNTIME: lambda index: lambda: runtime.run([given[index]]),
        TENSORFLOW: lambda index: lambda: graph(tensors[index]),
        NUMPY: lambda index: lambda: plain(given[index]),
        PACKED: lambda index: lambda: plain.packed(given[index]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}  # before it is imported
    machine = describe()
    plan = reference_plan(16, options.rows, "float32", "float32", whole=True)
    costs = measure(
        methods_of(plan, make_arena(16, options.rows, "float32")), options.rounds, options.calls, [TENSORFLOW]
    )
    found: dict[str, Spread] = {
        f"{name} ÷ runtime": spread(paired(costs[name], costs[RUNTIME])) for name in costs if name != RUNTIME
    }
    console = Console(width=110)
    for name, value in found.items():
        console.print(f"{name}: {value.median:.1f} ({value.lowest:.1f}–{value.highest:.1f})")
    ratios = {name: vars(value) for name, value in found.items()}
    write_json(options.out, {"machine": machine, "microseconds": costs, "ratios": ratios})
    picture = options.out.with_suffix(".png")
    title = f"{CANDIDATES} candidates,\n{options.rows / 1e6:g} M rows × 16"
    write_figure(picture, draw([Bars(title, found)], machine, "runtime with kernel = 1"))
    console.print(f"written: {options.out}, {picture}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often everything is measured")
    parser.add_argument("--calls", type=int, default=30, help="calls of each method in a round")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of all tables together")
    parser.add_argument(
        "--out", type=Path, default=Path("perf/results/preprocess.json"), help="JSON; PNG beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
