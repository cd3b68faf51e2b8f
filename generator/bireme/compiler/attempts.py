"""Sample requests, tried: what the CPU side makes of them, and the original model's scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bireme.compiler.check import Arrays
from bireme.compiler.load import SavedModel, fill_unused
from bireme.compiler.samples import Samples
from bireme.compiler.tables.mapped import let_go
from bireme.errors import CompileError
from bireme.requests import Request, to_rows, to_tensors
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.requests import RequestError

__all__ = ["Attempt", "taken", "try_requests", "try_samples"]


@dataclass(frozen=True)
class Attempt:
    """One sample request, its rows, what the CPU side makes of it, and the original's outputs."""

    request: Request
    rows: Arrays
    half: Features
    predicted: Arrays


def try_requests(model: SavedModel, plan: Plan, folder: Path, requests: Sequence[Request]) -> list[Attempt]:
    """The CPU side, run by the very code that serves on the very files that are served, and the original.

    Args:
        model: the original.
        plan: the feature plan.
        folder: where the plan's files lie; the plan is written there too.
        requests: none of which may fail.

    Raises:
        CompileError: the plan or the original refuses one.
    """
    preprocessor = _open(plan, folder)
    return [_try(model, preprocessor, folder, request) for request in requests]


def try_samples(model: SavedModel, plan: Plan, folder: Path, samples: Samples) -> list[Attempt]:
    """As `try_requests`; a made-up request that the original refuses too tells nothing, and is left out.

    Raises:
        CompileError: the plan or the original refuses one of the user's, the plan another, or both all.
    """
    preprocessor = _open(plan, folder)
    attempts = [_try(model, preprocessor, folder, request) for request in samples.given]
    works = False
    for request in (*samples.made, samples.sparse):
        try:
            attempts.append(_try(model, preprocessor, folder, request))
            works = True
        except CompileError:
            # The sparse one is the last of the made-up ones less what has a default: then that is at fault.
            if (request is samples.sparse and works) or _original_takes(model, plan, request):
                raise
            works = False
    if not attempts:
        raise CompileError(
            str(model.path),
            "refuses every made-up request",
            "give real ones: `samples` in the spec names a file of them",
        )
    return attempts


def taken(plan: Plan, folder: Path, requests: Sequence[Request]) -> list[tuple[Request, Features]]:
    """Those of some requests that the CPU side takes, and what it makes of them."""
    preprocessor = _open(plan, folder)
    tried = []
    for request in requests:
        half = preprocessor.run([to_tensors(plan.features, request)])[0]
        let_go(folder)
        if isinstance(half, Features):
            tried.append((request, half))
    return tried


def _open(plan: Plan, folder: Path) -> Preprocessor:
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    return Preprocessor.open(folder)


def _try(model: SavedModel, preprocessor: Preprocessor, folder: Path, request: Request) -> Attempt:
    features = preprocessor.plan.features
    # First, because this refuses what would fail somewhere inside TensorFlow.
    half = preprocessor.run([to_tensors(features, request)])[0]
    let_go(folder)
    if isinstance(half, RequestError):
        hint = "correct `samples`, or `defaults`, in the spec"
        raise CompileError("pass split", f"refuses a sample request: {half}", hint)
    rows = to_rows(features, request)
    # The original sees a sequence as it was sent: that padding changes nothing is checked, not assumed.
    predicted = model.predict(fill_unused(model, rows, features))
    let_go(folder)
    return Attempt(request, rows, half, predicted)


def _original_takes(model: SavedModel, plan: Plan, request: Request) -> bool:
    try:
        model.predict(fill_unused(model, to_rows(plan.features, request), plan.features))
    except CompileError:
        return False
    return True
