"""What a lossy storage of the tables does to scores and ranking, measured on samples and gated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from bireme.compiler.attempts import taken
from bireme.compiler.cut.split import Split
from bireme.compiler.dense import runner
from bireme.compiler.fp16.evidence import Evidence
from bireme.compiler.fp16.ranking import Change, Limits, measure_change, rank_gate
from bireme.compiler.tables.export import export_files
from bireme.compiler.tables.staged import Staged, stage
from bireme.compiler.tables.storage import assign_storage
from bireme.errors import CompileError
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features

__all__ = ["Stored", "store_tables"]


@dataclasses.dataclass(frozen=True)
class Stored:
    """The CPU side with its tables as they are served.

    Args:
        plan: the feature plan, with the tables' storage types.
        files: the plan's files.
        changes: task → what the storage changes; empty if all tables are stored as they are.
        auc_of: task → whose AUC is compared, in words.
    """

    plan: Plan
    files: Mapping[str, Staged]
    changes: Mapping[str, Change]
    auc_of: Mapping[str, str] = dataclasses.field(default_factory=dict)


def store_tables(
    plan: Plan,
    cut: Split,
    files: Mapping[str, Staged],
    dense: onnx.ModelProto,
    evidence: Callable[[], Evidence],
    folder: Path,
    storage: str | Mapping[str, str],
    limits: Limits,
) -> Stored:
    """Store the tables as the spec says, and compare with the tables as they are.

    Args:
        plan: the feature plan, all tables in FP32; known to be exact.
        cut: the split that it came from.
        files: its staged files.
        dense: the dense network that is served.
        evidence: sample requests; asked for only where there is something to compare.
        folder: where `files` lie; the new ones are written below it.
        storage: see `assign_storage`.
        limits: what the storage may change.

    Raises:
        SpecError: a pattern fits no table.
        CompileError: a table does not go into its type, or scores or ranking change more than the limits.
    """
    tables = assign_storage(plan.tables, storage)
    if tables == plan.tables:
        return Stored(plan, files, {})
    lossy = dataclasses.replace(plan, tables=tables)
    place = folder / "stored"
    place.mkdir()
    arenas = {table.arena for table in plan.tables}
    kept = {name: file for name, file in files.items() if name not in arenas}
    for name, file in kept.items():
        file(place / name)
    made = export_files(lossy, dataclasses.replace(cut, tables=tables))
    staged = stage({name: write for name, write in made.items() if name not in kept}, place)
    given = evidence()
    exact = taken(plan, folder, given.requests)
    coded = taken(lossy, place, [request for request, _ in exact])
    if len(coded) < len(exact):
        raise CompileError(
            "storage",
            "makes values that the dense network cannot be handed over",
            "store the tables with the largest values as float32",
        )
    labels = {
        id(request): sample.labels for request, sample in zip(given.requests, given.samples, strict=True)
    }
    before, after = (_scores(dense, [half for _, half in pairs]) for pairs in (exact, coded))
    changes = {
        task: measure_change(before[task], after[task], [labels[id(r)].get(task) for r, _ in exact])
        for task in before
    }
    for task, change in changes.items():
        beyond = rank_gate(change, limits)
        if beyond:
            raise CompileError(
                f"storage, output '{task}'",
                "; ".join(beyond),
                "store the tables that matter as float32 or float16, or raise `storage_limits` in the spec",
            )
    for name in arenas:
        (folder / name).unlink()
    return Stored(lossy, {**kept, **staged}, changes, given.auc_of)


def _scores(dense: onnx.ModelProto, features: Sequence[Features]) -> dict[str, list[Any]]:
    """Task → for each request its scores [users · candidates]."""
    run = runner(dense)
    runs = [run({"user": half.user, "items": half.items}) for half in features]
    return {
        task: [
            scores[task][:, : half.candidates].reshape(-1)
            for scores, half in zip(runs, features, strict=True)
        ]
        for task in runs[0]
    }
