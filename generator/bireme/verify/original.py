"""The original model's scores: the only part of `verify` that needs TensorFlow and the SavedModel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bireme.errors import VerifyError
from bireme.requests import Request, to_rows
from bireme.spec import BuildSpec
from bireme_runtime.plan import Plan

__all__ = ["original_scores", "require_same_model"]

Array = np.ndarray[Any, Any]


def original_scores(
    spec: BuildSpec,
    plan: Plan,
    requests: Sequence[Request],
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[dict[str, Array]]:
    """The SavedModel's scores, request by request: a sequence has the length that was sent.

    Args:
        spec: names the SavedModel.
        plan: the served feature plan.
        requests: what to score.
        progress: called with (what, done, total).

    Returns:
        For each request, task → [N].

    Raises:
        VerifyError: a score is not finite.
        BiremeError: the SavedModel cannot be read.
    """
    from bireme.compiler.load import SavedModel, fill_unused  # TensorFlow, only now

    model = SavedModel(spec.saved_model, spec.signature, spec.padding)
    names = spec.outputs or {name: name for name in model.outputs}
    scores: list[dict[str, Array]] = []
    for number, request in enumerate(requests, start=1):
        rows: dict[str, Any] = fill_unused(model, to_rows(plan.features, request))
        predicted = model.predict(rows)
        scores.append({task: np.asarray(predicted[name]).reshape(-1) for task, name in names.items()})
        progress("original model", number, len(requests))
    if not all(np.isfinite(array).all() for entry in scores for array in entry.values()):
        raise VerifyError(
            str(spec.saved_model), "gives NaN or infinite scores on sample requests", "check the model"
        )
    return scores


def require_same_model(spec: BuildSpec, built_from: str | None) -> None:
    """Refuse a SavedModel that is not the one that a repository was built from.

    Args:
        spec: names the SavedModel.
        built_from: the hash in the repository's manifest.

    Raises:
        VerifyError: it has changed since the build.
    """
    from bireme.compiler.pipeline import hash_folder

    if hash_folder(spec.saved_model) != built_from:
        message = "is not what the repository was built from: its files have changed since"
        raise VerifyError(str(spec.saved_model), message, "run `bireme build` again")
