"""Compile one exported subject and compare it with its SavedModel: `python measure.py FOLDER`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from requests_for import make_request

from bireme.compiler.dense import runner
from bireme.compiler.load import SavedModel, fill_unused
from bireme.compiler.pipeline import Compiled, compile_model
from bireme.compiler.rows.costs import flops_per_request
from bireme.errors import BiremeError
from bireme.requests import Request, to_rows, to_tensors
from bireme.spec import BuildSpec, read_spec
from bireme_runtime.batching import group_by_bucket, pad_together, trim_apart
from bireme_runtime.preprocessor import Features, Preprocessor

__all__ = ["COUNTS", "TOLERANCE", "measure", "write_spec"]

COUNTS = (1, 7, 64, 500)
TOLERANCE = 1e-5
#: Requests for each N; one execution of a bucket holds all of its requests, each of another user.
_SEEDS = (1, 2, 3)
_SAMPLES = ((3, 11), (10, 12), (2, 13))
#: A score that hardly varies would make every comparison worthless.
_SPREAD = 1e-3

Scores = dict[str, np.ndarray[Any, Any]]


def measure(folder: Path) -> dict[str, Any]:
    """Result of one subject as JSON values: status, difference per N, where it is split, cost.

    Args:
        folder: holds `saved_model/` and `subject.json`; gets the spec (`bireme.yaml`), its sample requests,
            and the files of the CPU side (`served/`).
    """
    about = json.loads((folder / "subject.json").read_text(encoding="utf-8"))
    user, draws = tuple(about["user"]), about["draws"]
    try:
        spec = write_spec(folder)
        compiled = compile_model(spec, "cpu")
    except BiremeError as error:
        return {"status": "refused", "reason": _reason(error, folder)}
    requests = [make_request(draws, user, count, seed) for count in COUNTS for seed in _SEEDS]
    served = _serve(compiled, folder / "served", requests)
    original = SavedModel(spec.saved_model)
    outputs = dict(spec.outputs) or {name: name for name in original.outputs}
    try:
        wanted = [_predict(original, compiled, request, outputs) for request in requests]
    except BiremeError as error:
        return {"status": "the SavedModel itself fails", "reason": _reason(error, folder)}
    differences = {str(count): 0.0 for count in COUNTS}
    for (count, _), found, scores in zip(
        ((c, s) for c in COUNTS for s in _SEEDS), served, wanted, strict=True
    ):
        for task, expected in scores.items():
            assert found[task].shape == expected.shape, (found[task].shape, expected.shape)
            worst = float(np.abs(found[task].astype(np.float64) - expected).max())
            differences[str(count)] = max(differences[str(count)], worst if np.isfinite(worst) else np.inf)
    spreads = {task: float(np.ptp(np.concatenate([s[task] for s in wanted]))) for task in outputs}
    worst = max(differences.values())
    status = "builds" if worst <= TOLERANCE else "differs"
    if min(spreads.values()) < _SPREAD:
        status = "degenerate"
    return {
        "status": status,
        "differences": differences,
        "difference": worst,
        "spread": min(spreads.values()),
        "user_columns": compiled.plan.user_width,
        "item_columns": compiled.plan.item_width,
        "tensors": len(compiled.split.boundaries),
        "flops_rowwise": flops_per_request(compiled.rowwise, COUNTS[-1]),
        "flops": flops_per_request(compiled.dense, COUNTS[-1]),
        "outside": _outside(compiled),
    }


def write_spec(folder: Path) -> BuildSpec:
    """Write a subject's spec (`bireme.yaml`) and sample requests beside its `subject.json`, and read them.

    Raises:
        SpecError: the subject's part of the spec is wrong.
    """
    about = json.loads((folder / "subject.json").read_text(encoding="utf-8"))
    user = about["user"]
    lines = [json.dumps(make_request(about["draws"], tuple(user), count, seed)) for count, seed in _SAMPLES]
    (folder / "samples.jsonl").write_text("\n".join(lines), encoding="utf-8")
    fields = {
        "model": "subject",
        "saved_model": "saved_model",
        "samples": "samples.jsonl",
        "buckets": [8, 64, 512],
    }
    (folder / "bireme.yaml").write_text(yaml.safe_dump({**fields, "user": user, **about["spec"]}))
    return read_spec(folder / "bireme.yaml")


def _reason(error: BiremeError, folder: Path) -> str:
    """One line, in which the machine's paths are left out."""
    return f"{error.where} {error.message}".replace(f"{folder}/", "")


def _serve(compiled: Compiled, folder: Path, requests: Sequence[Request]) -> list[Scores]:
    """Task → [N] for each request: all in one batch through the CPU side, then bucket by bucket."""
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(compiled.plan.to_json(), encoding="utf-8")
    for name, write in compiled.files.items():
        write(folder / name)
    preprocessor = Preprocessor.open(folder)
    halves: list[Features] = []
    for result in preprocessor.run([to_tensors(compiled.plan.features, request) for request in requests]):
        if not isinstance(result, Features):
            raise result
        halves.append(result)
    run = runner(compiled.dense)
    counts = [half.candidates for half in halves]
    groups, errors = group_by_bucket(counts, list(compiled.plan.buckets))
    assert not errors
    scores: list[Scores] = [{} for _ in requests]
    for bucket, members in groups.items():
        feeds = {
            "user": np.concatenate([halves[i].user for i in members]),
            "items": pad_together([halves[i].items for i in members], bucket),
        }
        for task, padded in run(feeds).items():
            parts = trim_apart(padded, [len(halves[i].user) for i in members], [counts[i] for i in members])
            for i, part in zip(members, parts, strict=True):
                scores[i][task] = part.reshape(-1)
    return scores


def _predict(model: SavedModel, compiled: Compiled, request: Request, outputs: dict[str, str]) -> Scores:
    """Task → [N] from the SavedModel, the user repeated for every candidate."""
    predicted = model.predict(fill_unused(model, to_rows(compiled.plan.features, request)))
    return {task: predicted[name].reshape(-1) for task, name in outputs.items()}


def _outside(compiled: Compiled) -> list[str]:
    """Pieces of the model that another engine runs inside `preprocess`."""
    return [f"{step.engine}: {step.name}" for step in compiled.plan.steps if step.op == "subgraph"]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "result.json").write_text(json.dumps(measure(place), indent=1), encoding="utf-8")
