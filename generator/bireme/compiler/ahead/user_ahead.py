"""Pass user_ahead: the compiled model as two, one for the user and one for slices of candidates.

Runs on the finished dense network, after every other pass, and only if asked for. Checked like the passes:
on the samples, the two halves must give the one-shot model's scores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bireme.ahead import AheadNames, UserAhead, make_marks
from bireme.compiler.ahead.frontier import TwoNetworks, cut_at_frontier
from bireme.compiler.ahead.half_plans import half_plan, needed_files
from bireme.compiler.check import Checker
from bireme.compiler.dense import runner
from bireme.compiler.fp16.strong_types import require_strong_types
from bireme.compiler.pipeline import Compiled
from bireme.compiler.samples import choose_samples
from bireme.compiler.tables.export import read_words
from bireme.compiler.tables.mapped import let_go
from bireme.errors import CompileError
from bireme.requests import Request, part_for, to_tensors
from bireme.spec import BuildSpec
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.requests import RequestError

__all__ = ["TOLERANCE", "Ahead", "Banks", "compile_user_ahead", "open_banks"]

#: The halves run the very nodes of the whole; the runtime may still fuse them differently.
TOLERANCE = 1e-6
#: Where FP16 is rounded to, ONNX Runtime decides: it leaves out casts to FP16 and back between two nodes.
TOLERANCE_FP16 = 5e-3
_MEASURED = 8


@dataclass(frozen=True)
class Ahead:
    """The pass's result.

    Args:
        parts: what is emitted.
        networks: both networks and what the state holds.
        difference: largest difference of a score to the one-shot model's, on the samples.
        samples: some of the samples, to measure with; the user's own, if the spec names any.
    """

    parts: UserAhead
    networks: TwoNetworks
    difference: float
    samples: tuple[Request, ...]


@dataclass(frozen=True)
class Banks:
    """The CPU side of the whole model and of both halves, opened on one set of files."""

    whole: Preprocessor
    user: Preprocessor
    slice: Preprocessor


def compile_user_ahead(compiled: Compiled, spec: BuildSpec, scratch: Path | None = None) -> Ahead:
    """Split a compiled model.

    Args:
        compiled: the finished one-shot model.
        spec: the spec that it was compiled from.
        scratch: a folder for temporary files, best where the compiled tables lie; None: the system's.

    Raises:
        CompileError: nothing of the user reaches the scores, the halves give other scores, or TensorRT would
            not take one of them.
    """
    if compiled.plan.listwise:
        raise CompileError(
            f"model '{compiled.plan.model}'",
            "ranks a list as a whole, so its candidates cannot be scored in slices",
            "build it without --user-ahead",
        )
    if not compiled.plan.user_width:
        raise CompileError(
            f"model '{compiled.plan.model}'",
            "computes nothing of the user alone, so there is nothing to do ahead of time",
            "build it without --user-ahead",
        )
    plan, names = compiled.plan, AheadNames(compiled.plan.model)
    dense = compiled.dense.SerializeToString(deterministic=True)
    marks = make_marks(
        [dense, plan.to_json().encode(), *(value.encode() for _, value in sorted(compiled.source.items()))]
    )
    state = _state_name(compiled)
    networks = cut_at_frontier(compiled.dense, state, marks)
    if compiled.contract.on_gpu:
        require_strong_types(networks.user)
        require_strong_types(networks.items)
    user_plan = half_plan(plan, "user", names.user)
    slice_plan = half_plan(plan, "item", names.slice)
    parts = UserAhead(
        user_plan=user_plan,
        slice_plan=slice_plan,
        user_onnx=networks.user.SerializeToString(deterministic=True),
        slice_onnx=networks.items.SerializeToString(deterministic=True),
        state=state,
        width=networks.width,
        marks=marks,
        user_files=needed_files(user_plan, compiled.files),
        slice_files=needed_files(slice_plan, compiled.files),
    )
    samples = choose_samples(spec.samples, plan, read_words(compiled.split))
    requests = [*samples.given, *samples.made, samples.sparse]
    difference = _check(compiled, parts, networks, requests, scratch)
    return Ahead(parts, networks, difference, tuple(requests[:_MEASURED]))


def open_banks(compiled: Compiled, parts: UserAhead, folder: Path) -> Banks:
    """Put the model's tables and vocabularies into a folder and open the three plans on them."""
    for name, write in compiled.files.items():
        write(folder / name)

    def bank(plan: Plan) -> Preprocessor:
        (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        return Preprocessor.open(folder)

    return Banks(bank(compiled.plan), bank(parts.user_plan), bank(parts.slice_plan))


def _state_name(compiled: Compiled) -> str:
    """Free in the ensembles, where it shares a space with features and tasks."""
    taken = {*(feature.name for feature in compiled.plan.features), *compiled.contract.tasks}
    taken |= {"user", "items", "n"}
    name = "user_state"
    while name in taken:
        name += "_"
    return name


def _check(
    compiled: Compiled,
    parts: UserAhead,
    networks: TwoNetworks,
    samples: Sequence[Request],
    scratch: Path | None,
) -> float:
    whole, user, items = runner(compiled.dense), runner(networks.user), runner(networks.items)
    expected: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        banks = open_banks(compiled, parts, Path(folder))
        for request in samples:
            if _refused(banks.whole, request):
                continue  # made up, and no request for this model
            all_at_once = _run(banks.whole, request)
            ahead, later = _run(banks.user, request), _run(banks.slice, request)
            if not np.array_equal(ahead.user, all_at_once.user) or not np.array_equal(
                later.items, all_at_once.items
            ):
                raise _fault("the half plans hand over other columns than the whole plan")
            expected.append(whole({"user": all_at_once.user, "items": all_at_once.items}))
            state = user({"user": ahead.user})[parts.state]
            found.append(items({parts.state: state, "items": later.items}))
            let_go(Path(folder))
    half_precision = any(piece.dtype == "float16" for piece in networks.pieces)
    checker = Checker(_joined(expected), TOLERANCE_FP16 if half_precision else TOLERANCE)
    checker("user_ahead", _joined(found))
    return checker.differences["user_ahead"]


def _refused(bank: Preprocessor, request: Request) -> bool:
    return isinstance(bank.run([to_tensors(bank.plan.features, request)])[0], RequestError)


def _run(bank: Preprocessor, request: Request) -> Features:
    """A half takes what is its own of a request."""
    features = bank.plan.features
    result = bank.run([to_tensors(features, part_for(features, request))])[0]
    if isinstance(result, RequestError):
        raise _fault(f"a half plan refuses a sample request that the whole plan takes: {result}")
    return result


def _joined(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {task: np.concatenate([run[task].reshape(-1) for run in runs]) for task in runs[0]}


def _fault(message: str) -> CompileError:
    return CompileError(
        "pass user_ahead",
        message,
        "a fault of the compiler, not of your model: please report it, and build without --user-ahead",
    )
