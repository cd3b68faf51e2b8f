"""Whether pieces that another engine runs keep rows apart, on the sample requests.

`piece.check_rows` asks the same of each piece with made-up rows, which real models may refuse; these are the
values that the model takes, through the code that serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.attempts import Attempt
from bireme.compiler.cut.boundary import Boundary
from bireme.compiler.tables.mapped import let_go
from bireme.errors import CompileError
from bireme.requests import to_tensors
from bireme_runtime.plan import Plan, Side, Subgraph
from bireme_runtime.preprocessor import Features, Preprocessor

__all__ = ["check_apart"]

#: Candidates of a request that are also sent alone.
_ALONE = 4

Array = np.ndarray[Any, Any]


def check_apart(plan: Plan, folder: Path, boundaries: Sequence[Boundary], tried: Sequence[Attempt]) -> None:
    """Send candidates alone, and all requests in one batch, and compare with each request by itself.

    Args:
        plan: the feature plan, with FP32 hand-over.
        folder: where its files lie.
        boundaries: what its columns are.
        tried: sample requests, and what the CPU side made of them.

    Raises:
        CompileError: a column depends on the other rows, naming it.
    """
    if not any(isinstance(step, Subgraph) for step in plan.steps):
        return
    preprocessor = Preprocessor.open(folder)
    # A part of a list is no list that the model takes, yet its columns must be the same.
    preprocessor.plan = replace(plan, listwise=False)
    tensors = [to_tensors(plan.features, attempt.request) for attempt in tried]
    together = preprocessor.run(tensors)
    let_go(folder)
    items = {feature.name for feature in plan.features if feature.side == "item"}
    for sent, attempt, found in zip(tensors, tried, together, strict=True):
        half = attempt.half
        _compare(boundaries, half.user, half.items[:, : half.candidates], found)
        for index in sorted({*range(min(half.candidates, _ALONE)), half.candidates - 1}):
            one = slice(index, index + 1)
            part = {name: array[:, one] if name in items else array for name, array in sent.items()}
            _compare(boundaries, half.user, half.items[:, one], preprocessor.run([part])[0])
        let_go(folder)


def _compare(boundaries: Sequence[Boundary], user: Array, items: Array, found: Any) -> None:
    if not isinstance(found, Features):
        raise CompileError("pass split", f"refuses a row without its neighbours: {found}", _REMEDY)
    ends: dict[Side, tuple[Array, Array]] = {
        "user": (user, found.user),
        "item": (items, found.items[:, : found.candidates]),
    }
    for boundary in boundaries:
        wanted, given = (
            x[..., boundary.offset : boundary.offset + boundary.width] for x in ends[boundary.side]
        )
        if not np.allclose(wanted, given, rtol=1e-5, atol=1e-6):
            raise CompileError(
                f"'{boundary.made_of}'",
                "has other values beside other rows, so batching would change scores",
                _REMEDY,
            )


_REMEDY = "compute it row by row in the model"
