"""A model of derived strings and integers against the original, on requests made up for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from compiler_helpers import Served, original_scores

from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import Compiled, compile_model
from bireme.spec import BuildSpec

__all__ = ["check", "scores_of"]


def check(spec: BuildSpec, folder: Path, requests: list[Any] | None = None) -> Compiled:
    """Compile, serve (alone and together) and compare with the original; returns the compiled model."""
    compiled = compile_model(spec, "cpu")
    files = folder / "files"
    files.mkdir()
    served = Served(compiled, files)
    given = requests or served.requests([1, 8, 40, 64])
    for found, expected in zip(served.scores(given), scores_of(spec, compiled, given), strict=True):
        np.testing.assert_allclose(found["score"], expected, rtol=0, atol=2e-6)
    return compiled


def scores_of(spec: BuildSpec, compiled: Compiled, requests: list[Any]) -> list[np.ndarray[Any, Any]]:
    """What the original gives for each request."""
    model = SavedModel(spec.saved_model)
    return [original_scores(model, compiled, request, {"score": "score"})["score"] for request in requests]
