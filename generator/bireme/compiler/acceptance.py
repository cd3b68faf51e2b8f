"""The whole chain against the original model: graph passes in TensorFlow, the two halves as they serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bireme.compiler.attempts import Attempt, try_requests, try_samples
from bireme.compiler.check import Checker, as_function
from bireme.compiler.cut.apart import check_apart
from bireme.compiler.cut.split import Split
from bireme.compiler.dense import runner
from bireme.compiler.fp16.emulate import emulated
from bireme.compiler.graph import Graph
from bireme.compiler.load import SavedModel, fill_unused
from bireme.compiler.samples import Samples
from bireme.compiler.tables.mapped import let_go
from bireme.compiler.tables.tidy import give_back
from bireme.requests import Request, pad_rows
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features

__all__ = ["boundary_feeds", "check_passes", "check_precision"]

#: FP32 passes reorder sums; they must not do more than that.
TOLERANCE = 1e-5


def check_passes(
    model: SavedModel,
    outputs: Mapping[str, str],
    graphs: Mapping[str, Graph],
    plan: Plan,
    cut: Split,
    rowwise: onnx.ModelProto,
    dense: onnx.ModelProto,
    samples: Samples,
    folder: Path,
) -> dict[str, float]:
    """Run every stage on the same requests.

    Args:
        model: the original.
        outputs: task → signature output.
        graphs: pass → graph after it.
        plan: the feature plan, with FP32 hand-over.
        cut: the split that the plan came from.
        rowwise: the dense network, row-wise.
        dense: the dense network after user_once.
        samples: sample requests.
        folder: where the plan's arena and vocabulary files lie; the plan is written there too.

    Returns:
        Pass → largest difference.

    Raises:
        CompileError: a pass changed a score, the feature plan refuses a sample, or mixes rows.
    """
    tried = try_samples(model, plan, folder, samples)
    check_apart(plan, folder, cut.boundaries, tried)
    rows = [fill_unused(model, pad_rows(plan.features, attempt.rows)) for attempt in tried]
    halves = [attempt.half for attempt in tried]
    checker = Checker(_expected(outputs, tried), TOLERANCE)
    for name, graph in graphs.items():
        run = as_function(graph)
        found = []
        for values in rows:
            found.append(run(values))
            let_go(folder)
        checker(name, _joined(found))
        del run
        give_back()
    run_rowwise, run_dense = runner(rowwise), runner(dense)
    checker("dense", _joined([run_rowwise(boundary_feeds(cut, half)) for half in halves]))
    checker("user_once", _joined([_trimmed(run_dense, half) for half in halves]))
    return checker.differences


def check_precision(
    model: SavedModel,
    outputs: Mapping[str, str],
    plan: Plan,
    dense: onnx.ModelProto,
    requests: Sequence[Request],
    folder: Path,
    tolerance: float,
) -> float:
    """Run what will be served, rounded as a GPU rounds, and compare it with the original.

    Args:
        model: the original.
        outputs: task → signature output.
        plan: the feature plan as it is served.
        dense: the dense network as it is served, FP16 in parts.
        requests: the requests that precision was decided on.
        folder: where the plan's arena and vocabulary files lie; the plan is written there too.
        tolerance: what rounding to FP16 may do, in units of the largest score; FP32's own comes on top.

    Returns:
        The largest difference.

    Raises:
        CompileError: a score differs by more, or the plan refuses a request.
    """
    tried = try_requests(model, plan, folder, requests)
    checker = Checker(_expected(outputs, tried), tolerance + TOLERANCE)
    run = runner(emulated(dense))
    checker("precision", _joined([_trimmed(run, attempt.half) for attempt in tried]))
    return checker.differences["precision"]


def _expected(outputs: Mapping[str, str], tried: Sequence[Attempt]) -> dict[str, Any]:
    return {
        task: np.concatenate([attempt.predicted[name].reshape(-1) for attempt in tried])
        for task, name in outputs.items()
    }


def _trimmed(run: Callable[[dict[str, Any]], dict[str, Any]], half: Features) -> dict[str, Any]:
    """The scores of one request without those of bucket padding."""
    scores = run({"user": half.user, "items": half.items})
    return {task: values[:, : half.candidates] for task, values in scores.items()}


def _joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {task: np.concatenate([run[task].reshape(-1) for run in runs]) for task in runs[0]}


def boundary_feeds(cut: Split, half: Features) -> dict[str, Any]:
    """Columns of `user` and `items` as the row-wise dense network's inputs, padding left out."""
    items = half.items[:, : half.candidates].astype(np.float32)
    user = np.repeat(half.user.astype(np.float32)[:, None], half.candidates, axis=1)
    feeds = {}
    for boundary in cut.boundaries:
        source = user if boundary.side == "user" else items
        columns = source[..., boundary.offset : boundary.offset + boundary.width]
        feeds[boundary.name] = columns.reshape(-1, *boundary.shape)
    return feeds
