"""All passes in order, each checked against the original model on sample requests."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from bireme.compiler.acceptance import check_passes, check_precision
from bireme.compiler.batchnorm import fold_batchnorm
from bireme.compiler.composites import Composite
from bireme.compiler.cut.impure import refuse_impure
from bireme.compiler.cut.split import Split, split
from bireme.compiler.dense import UnconvertibleError, to_onnx
from bireme.compiler.features import check_task_names, read_features, symbolic_shapes
from bireme.compiler.fold import fold
from bireme.compiler.fp16.evidence import gather_evidence
from bireme.compiler.fp16.precision import Precision, choose_precision, full_precision
from bireme.compiler.fp16.ranking import Change, Limits
from bireme.compiler.fp16.strong_types import require_strong_types
from bireme.compiler.graph import Graph
from bireme.compiler.load import SavedModel, load, require_scores
from bireme.compiler.losses import find_losses
from bireme.compiler.merge import merge
from bireme.compiler.rows.canonical import without_origin
from bireme.compiler.rows.rows_first import rows_first
from bireme.compiler.rows.user_once import user_once
from bireme.compiler.samples import choose_samples
from bireme.compiler.tables.export import export_files, read_words
from bireme.compiler.tables.parked import park, parking
from bireme.compiler.tables.staged import stage
from bireme.compiler.tables.storage_check import store_tables
from bireme.compiler.tables.vocabularies import check_ids
from bireme.compiler.trim import trim
from bireme.compiler.unroll import refuse_control_flow, unroll
from bireme.errors import SpecError
from bireme.requests import Request
from bireme.spec import BuildSpec, Contract, Target
from bireme_runtime.plan import Feature, Plan, Side

__all__ = ["Compiled", "compile_model", "hash_folder"]

Progress = Callable[[str], None]
_GRAPH_PASSES = {"unroll": unroll, "trim": trim, "fold": fold, "batchnorm": fold_batchnorm, "merge": merge}


@dataclass(frozen=True)
class Compiled:
    """A compiled model, in memory; `emitter` writes it.

    Args:
        contract: names, shapes, dtypes of what will be served.
        plan: the CPU side.
        files: arena and vocabulary files, as functions that write them.
        rowwise: the dense network before user_once, for the report.
        dense: the dense network to serve.
        precision: what of it is FP16, and why.
        split: where the cut is.
        differences: pass → largest difference to the original on the samples.
        storage: task → what the storage of the tables changes; empty if they are stored as they are.
        auc_of: task → whose AUC `storage` compares, in words; empty like it.
        nodes: pass → number of nodes after it.
        example: the first sample request.
        source: what it was compiled from (hash of the SavedModel, versions).
    """

    contract: Contract
    plan: Plan
    files: Mapping[str, Callable[[Path], None]]
    rowwise: onnx.ModelProto
    dense: onnx.ModelProto
    precision: Precision
    split: Split
    differences: Mapping[str, float]
    storage: Mapping[str, Change]
    auc_of: Mapping[str, str]
    nodes: Mapping[str, int]
    example: Request
    source: Mapping[str, str]


def compile_model(
    spec: BuildSpec, target: Target, progress: Progress = lambda _: None, scratch: Path | None = None
) -> Compiled:
    """SavedModel → feature plan, tables and dense ONNX.

    Args:
        spec: the build spec.
        target: where the dense network will run; decides who pads, and whether FP16 is worth while.
        progress: called with each pass's name as it starts.
        scratch: an empty folder where tables and vocabularies are written for the check and then stay for
            whoever takes them over; None: a temporary one, and `Compiled.files` writes them anew.

    Raises:
        SpecError: the spec does not fit the model.
        CompileError: the model cannot be carried over exactly, or TensorRT would not take its dense network,
            naming pass, op or tensor.
    """
    progress("load")
    with parking(scratch):
        model = SavedModel(spec.saved_model, spec.signature, spec.padding)
    if scratch is not None:
        park(model.function.graph.variables, scratch)
    require_scores(model, spec.outputs)
    graphs: dict[str, Graph] = {"load": load(model, spec.outputs, spec.lengths)}
    check_task_names(graphs["load"].outputs)
    refuse_impure(graphs["load"])
    for name, run in _GRAPH_PASSES.items():
        progress(name)
        graphs[name] = run(graphs[list(graphs)[-1]])
    folded = graphs["merge"]
    features = read_features(model, spec, folded.features)
    _refuse_user_only(features)

    sides: dict[str, Side] = {feature.name: feature.side for feature in features}
    cut, converted = _cut(folded, symbolic_shapes(model, sides), sides, model.composites, progress)
    check_ids(cut.steps, cut.tables, cut.vocabularies)
    if not cut.item_width:
        raise _nothing_to_rank("no feature of a candidate changes a score")
    contract = Contract(
        model=spec.model,
        features=features,
        tasks=tuple(folded.outputs),
        user_width=cut.user_width,
        item_width=cut.item_width,
        buckets=spec.buckets,
        max_users=spec.max_users,
        target=target,
        listwise=spec.listwise,
        layout=spec.layout,
    )
    plan = _plan(contract, cut)

    rowwise = rows_first(converted, [b.name for b in cut.boundaries if b.side == "user"])
    progress("user_once")
    dense = user_once(rowwise, cut.boundaries, cut.user_width, cut.item_width, "float32", spec.listwise)
    if contract.on_gpu:
        require_strong_types(dense)  # before the search for a precision, which takes longer

    progress("check")
    samples = choose_samples(spec.samples, plan, read_words(cut))
    outputs = spec.outputs or {name: name for name in model.outputs}
    with _folder(scratch) as folder:
        files = stage(export_files(plan, cut), folder)
        differences = check_passes(model, outputs, graphs, plan, cut, rowwise, dense, samples, folder)
        precision = full_precision(dense)
        evidence = functools.cache(
            functools.partial(gather_evidence, spec.samples, plan, read_words(cut), folder, contract.tasks)
        )
        if spec.precision.mode == "fp16" or (spec.precision.mode == "auto" and contract.on_gpu):
            progress("precision")
            precision = choose_precision(dense, spec.precision, evidence(), cut.boundaries)
            contract = contract.model_copy(update={"handover": precision.handover})
            plan = _plan(contract, cut)
            differences["precision"] = check_precision(
                model, outputs, plan, precision.dense, evidence().requests, folder, spec.precision.tolerance
            )
            if contract.on_gpu:
                require_strong_types(precision.dense)
        limits = Limits(**spec.storage_limits.model_dump())
        stored = store_tables(plan, cut, files, precision.dense, evidence, folder, spec.storage, limits)
    losses = find_losses(spec, precision, stored.changes)
    nodes = {name: len(graph.nodes) for name, graph in graphs.items()}
    nodes |= {
        "split": len(cut.dense.nodes),
        "dense": len(rowwise.graph.node),
        "user_once": len(dense.graph.node),
        "precision": len(precision.dense.graph.node),
    }
    return Compiled(
        contract=contract.model_copy(update={"losses": losses}),
        plan=stored.plan,
        files=stored.files,
        storage=stored.changes,
        auc_of=stored.auc_of,
        rowwise=rowwise,
        dense=without_origin(precision.dense),
        precision=precision,
        split=cut,
        differences=differences,
        nodes=nodes,
        example=samples.example,
        source={"saved_model_sha256": hash_folder(spec.saved_model), "signature": spec.signature},
    )


def _cut(
    graph: Graph,
    shapes: dict[str, Any],
    sides: dict[str, Side],
    composites: Mapping[str, Composite],
    progress: Progress,
) -> tuple[Split, onnx.ModelProto]:
    """The cut and its dense side as ONNX: ops that ONNX does not know stay on the CPU side."""
    forced: set[str] = set()
    while True:
        progress("split")
        cut = split(graph, shapes, sides, forced, composites)
        refuse_control_flow(cut.dense)
        progress("dense")
        try:
            return cut, to_onnx(cut.dense)
        except UnconvertibleError as error:
            more = {name for name in error.nodes if name in graph.nodes} - forced
            if not more:
                raise
            forced |= more


def _refuse_user_only(features: Sequence[Feature]) -> None:
    """Refuse a model whose scores are the same for all candidates.

    Raises:
        SpecError: with the inputs to choose from.
    """
    if all(feature.side == "user" for feature in features):
        names = ", ".join(feature.name for feature in features)
        raise _nothing_to_rank(f"every input that the scores read is listed: {names}" if names else "")


def _nothing_to_rank(why: str) -> SpecError:
    return SpecError(
        "user",
        f"leaves nothing to rank: {why or 'the scores read no input at all'}",
        "leave out of `user` what differs between candidates; a model of the user alone is no ranking model",
    )


@contextlib.contextmanager
def _folder(scratch: Path | None) -> Iterator[Path]:
    if scratch is not None:
        yield scratch
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _plan(contract: Contract, cut: Split) -> Plan:
    return Plan(
        model=contract.model,
        features=contract.features,
        tables=cut.tables,
        steps=cut.steps,
        user_width=cut.user_width,
        item_width=cut.item_width,
        handover=contract.handover,
        buckets=contract.buckets,
        pad=contract.padded,
        listwise=contract.listwise,
    )


def hash_folder(folder: Path) -> str:
    """SHA-256 over names and contents; the fingerprint of a SavedModel without its path or times."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "fingerprint.pb"):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
