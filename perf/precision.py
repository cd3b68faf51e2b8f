"""What FP16 by search costs in ranking quality, on models trained on clicks that can be learnt.

    python perf/precision.py --out perf/results/precision.json

Trains each model for some seconds, compiles it for the gpu target with recorded requests and their clicks as
samples, and then ranks requests that neither training nor compiler has seen, in TensorFlow and with what
would be served: the feature plan with its hand-over, and the typed network, rounded to FP16 after every op on
this CPU (no GPU is used; a GPU that fuses ops rounds less often). Beside it, the same under stricter limits,
so that the search has something to do, and with every node and the hand-over in FP16. Prints a table, writes
JSON and a picture of the same name.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from bireme.compiler.attempts import taken
from bireme.compiler.dense import runner
from bireme.compiler.fp16.emulate import emulated
from bireme.compiler.fp16.half import to_half
from bireme.compiler.fp16.precision_report import precision_data
from bireme.compiler.fp16.ranking import Change, auc, measure_change, rank_moves
from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import Compiled, compile_model
from bireme.requests import Request, to_rows
from bireme.spec import BuildSpec
from bireme_runtime.plan import Plan
from files import write_figure, write_json
from half.cases import write_case
from half.clicks import USER, Clicks, make_clicks, to_request
from half.networks import NETWORKS, train
from half.plot import draw
from machine import describe

Array = np.ndarray[Any, Any]
Scores = dict[str, list[Array]]

_TRAINED, _SAMPLES, _HELD_OUT = 1_500, 60, 250  # requests
_CANDIDATES = 100
_EPOCHS = 3
#: Limits that plain FP16 does not keep.
_STRICT = {"tolerance": 5e-4, "max_rank_move": 0.02}


def record(name: str, folder: Path, cases: Path | None = None) -> dict[str, Any]:
    """Train, compile and rank with one network.

    Args:
        name: which one.
        folder: an empty folder.
        cases: where to leave the searched network and the held-out requests for a GPU.
    """
    rows, labels = make_clicks(_TRAINED, _CANDIDATES, seed=1).flat()
    _, features, tasks = train(name, rows, labels, _EPOCHS, folder / "saved_model")
    samples = make_clicks(_SAMPLES, _CANDIDATES, seed=2)
    lines = [json.dumps(to_request(samples, i, features, tasks)) for i in range(_SAMPLES)]
    (folder / "samples.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = BuildSpec(
        model="m",
        saved_model=folder / "saved_model",
        user=tuple(feature for feature in USER if feature in features),
        buckets=(128,),
        samples=folder / "samples.jsonl",
    )
    held_out = make_clicks(_HELD_OUT, _CANDIDATES, seed=3)
    requests = [to_request(held_out, i, features, tasks) for i in range(_HELD_OUT)]

    reference = _original(spec, requests, folder)
    full = _compile(spec, folder / "fp32", mode="fp32")
    result: dict[str, Any] = {"model": name, "held_out_rows": held_out.rows}
    for kind, limits in (("searched", {}), ("strict", _STRICT)):
        typed = _compile(spec, folder / kind, **limits)
        scores = _served(typed.plan, folder / kind, requests, typed.dense)
        if cases is not None and kind == "searched":
            write_case(name, typed, folder / kind, requests, reference, cases)
        result[kind] = {
            "limits": limits,
            "precision": precision_data(typed.precision),
            "tasks": _quality(reference, scores, held_out),
        }
    for kind, dense in (
        ("fp32", full.dense),
        ("everything_fp16", to_half(full.dense, _too_large(full.dense), "float16")),
    ):
        scores = _served(full.plan, folder / "fp32", requests, dense)
        result[kind] = {"tasks": _quality(reference, scores, held_out)}
    return result


def _too_large(dense: onnx.ModelProto) -> list[str]:
    """Nodes with a constant that FP16 cannot hold, such as a mask's −1e9: they alone stay FP32."""
    values = {weight.name: onnx.numpy_helper.to_array(weight) for weight in dense.graph.initializer}
    large = {
        name for name, value in values.items() if value.dtype == np.float32 and np.abs(value).max() > 65504
    }
    return [node.name for node in dense.graph.node if large & set(node.input)]


def _compile(spec: BuildSpec, folder: Path, **precision: Any) -> Compiled:
    folder.mkdir()
    asked = spec.model_copy(update={"precision": spec.precision.model_copy(update=precision)})
    return compile_model(asked, "gpu", scratch=folder)


def _original(spec: BuildSpec, requests: Sequence[Request], folder: Path) -> Scores:
    """TensorFlow's scores, request by request."""
    model = SavedModel(spec.saved_model, spec.signature)
    (folder / "plain").mkdir()
    features = compile_model(
        spec.model_copy(update={"samples": None}), "cpu", scratch=folder / "plain"
    ).plan.features
    scores: Scores = {}
    for request in requests:
        for task, values in model.predict(to_rows(features, request)).items():
            scores.setdefault(task, []).append(values.reshape(-1))
    return scores


def _served(plan: Plan, folder: Path, requests: Sequence[Request], dense: onnx.ModelProto) -> Scores:
    """Scores of the feature plan and a network, rounded as its types say."""
    run = runner(emulated(dense))
    half = {v.name for v in dense.graph.input if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    scores: Scores = {}
    for _, features in taken(plan, folder, requests):
        feeds = {"user": features.user, "items": features.items[:, : features.candidates]}
        with np.errstate(over="ignore"):
            feeds = {k: v.astype(np.float16) if k in half else v for k, v in feeds.items()}
        for task, values in run(feeds).items():
            scores.setdefault(task, []).append(values.reshape(-1))
    return scores


def _quality(reference: Scores, scores: Scores, clicks: Clicks) -> dict[str, dict[str, Any]]:
    """Task → what became of its ranking; null where scores are lost."""
    result = {}
    for task, found in scores.items():
        labels = list(clicks.labels[task])
        change = measure_change(reference[task], found, labels)
        entry: dict[str, Any] = _plain(change)
        known = change.finite
        entry["auc_after"] = auc(np.concatenate(found), np.concatenate(labels)) if known else None
        moves = (
            [rank_moves(old, new) for old, new in zip(reference[task], found, strict=True)] if known else []
        )
        entry["mean_rank_move"] = float(np.mean(moves)) if known else None
        entry["lost_scores"] = int(sum((~np.isfinite(part)).sum() for part in found))
        result[task] = entry
    return result


def _plain(change: Change) -> dict[str, Any]:
    values = dataclasses.asdict(change)
    return {k: v if isinstance(v, bool) or np.isfinite(v) else None for k, v in values.items()}


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One line a task."""
    made = Table(title="FP16 by search against FP32, held-out requests", title_justify="left")
    for column in (
        "model", "task", "limits", "AUC FP32", "AUC FP16", "AUC change", "largest move", "mean move",
        "nodes FP32", "multiply-adds FP32", "hand-over", "evaluations", "everything FP16: AUC change, move",
    ):  # fmt: skip
        made.add_column(column, overflow="fold")
    for result in results:
        for kind, task in itertools.product(("searched", "strict"), result["fp32"]["tasks"]):
            precision, half = result[kind]["precision"], result[kind]["tasks"][task]
            naive = result["everything_fp16"]["tasks"][task]
            lost = f"{naive['lost_scores']:,} scores lost" if naive["lost_scores"] else ""
            made.add_row(
                result["model"],
                task,
                "default" if kind == "searched" else "strict",
                f"{result['fp32']['tasks'][task]['auc_after']:.5f}",
                f"{half['auc_after']:.5f}",
                f"{half['auc']:.1e}",
                f"{half['rank_move']} of {_CANDIDATES}",
                f"{half['mean_rank_move']:.2f}",
                f"{len(precision['kept_fp32'])} of {precision['computing_nodes']}",
                f"{precision['flops_kept_fp32']:.1%}",
                precision["handover"],
                str(precision["evaluations"]),
                lost or f"{naive['auc']:.1e}, {naive['rank_move']}",
            )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="which ones")
    parser.add_argument("--out", type=Path, default=Path("perf/results/precision.json"))
    parser.add_argument("--cases", type=Path, help="leave the networks and held-out requests for a GPU here")
    options = parser.parse_args(arguments)
    results = []
    for name in options.models:
        with tempfile.TemporaryDirectory(prefix="bireme-precision-") as folder:
            print(name, file=sys.stderr)
            results.append(record(name, Path(folder), options.cases))
    Console(width=200).print(table(results))
    machine = describe()
    settings = {
        "trained_requests": _TRAINED, "sample_requests": _SAMPLES, "held_out_requests": _HELD_OUT,
        "candidates": _CANDIDATES, "epochs": _EPOCHS, "strict_limits": _STRICT,
        "fp16": "emulated on the CPU, rounded after every op",
    }  # fmt: skip
    write_json(options.out, {"machine": machine, "settings": settings, "models": results})
    picture = options.out.with_suffix(".png")
    write_figure(picture, draw(results, _CANDIDATES, _HELD_OUT * _CANDIDATES))
    print(f"written: {options.out}, {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
