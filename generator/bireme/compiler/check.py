"""Each pass against the original model, on sample rows: a mismatch stops the build and names the pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.compiler.graph import Graph, tf
from bireme.errors import CompileError

__all__ = ["Checker", "as_function"]

Arrays = dict[str, np.ndarray[Any, Any]]


def as_function(graph: Graph, fetches: dict[str, str] | None = None) -> Callable[[Arrays], Arrays]:
    """A graph as a function of rows, executed by TensorFlow. Preparing it costs far more than a call.

    Args:
        graph: the graph; its captures are bound to the loaded model's variables and lookup tables.
        fetches: name → tensor; by default the graph's outputs.

    Returns:
        Signature input → values [rows, ...] to name → values.
    """
    graph_def = graph.to_graph_def()
    wanted = graph.outputs if fetches is None else fetches
    specs = [tf.TensorSpec(None, _dtype(graph, name)) for name in graph.features]

    def imported(*values: Any) -> list[Any]:
        current = tf.compat.v1.get_default_graph()
        feeds = {f"{node}:0": value for node, value in zip(graph.features.values(), values, strict=True)}
        feeds |= {f"{node}:0": current.capture(c.handle) for node, c in graph.captures.items()}
        result: list[Any] = tf.graph_util.import_graph_def(
            graph_def, input_map=feeds, return_elements=list(wanted.values())
        )
        return result

    function = tf.compat.v1.wrap_function(imported, specs)

    def run(rows: Arrays) -> Arrays:
        feeds = [tf.constant(rows[name], dtype=_dtype(graph, name)) for name in graph.features]
        return {name: value.numpy() for name, value in zip(wanted, function(*feeds), strict=True)}

    return run


def _dtype(graph: Graph, feature: str) -> Any:
    return tf.as_dtype(graph.nodes[graph.features[feature]].attr["dtype"].type)


class Checker:
    """Compares the outputs of each pass with the original's, and keeps the differences for the report.

    Args:
        expected: task → original scores [rows].
        tolerance: largest allowed difference, in units of the task's largest score, or of 1 if that is larger
            (a small score that is left of large sums has their rounding error).
    """

    def __init__(self, expected: Arrays, tolerance: float) -> None:
        self.expected = expected
        self.tolerance = tolerance
        self.differences: dict[str, float] = {}

    def __call__(self, name: str, outputs: Arrays) -> None:
        """Compare a pass's outputs.

        Raises:
            CompileError: an output differs, naming the pass, the task and the first row at fault.
        """
        worst = 0.0
        for task, actual in outputs.items():
            wanted, found = self.expected[task].reshape(-1), actual.reshape(-1).astype(np.float64)
            scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
            with np.errstate(invalid="ignore"):
                difference = np.abs(found - wanted) / scale
            # Equal infinities and NaNs are equal; a NaN on one side only must not pass as "no difference".
            same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
            difference = np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))
            if difference.size and difference.max() > self.tolerance:
                row = int(difference.argmax())
                raise CompileError(
                    f"pass {name}, output '{task}'",
                    f"differs from the original model by {difference[row]:.3g} in sample row {row}"
                    f" (tolerance {self.tolerance:g})",
                    "a fault of the compiler, not of your model: please report it with the model's graph",
                )
            worst = max(worst, float(difference.max(initial=0.0)))
        self.differences[name] = worst
