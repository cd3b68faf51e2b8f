"""spec → model repository: compile, then emit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bireme.cores import usable_cores
from bireme.emitter.graph_budget import choose_graphs
from bireme.emitter.instances import choose_instances, explain
from bireme.errors import EmitError, SpecError
from bireme.native.flags import host_architecture, library_name
from bireme.native.library import library_for, native_folder
from bireme.scratch import scratch_for
from bireme.spec import BuildSpec, Layout, Target, read_spec

__all__ = ["Built", "build"]


@dataclass(frozen=True)
class Built:
    """What `build` made.

    Args:
        model: name of the ensemble.
        folders: the models' folders in load order.
        report: the compiler's report, as JSON values.
        instances: for how many cores it was built, and how many processes and threads that means.
        notes: what else to tell, a line each: the kernel's library was compiled, or is missing and why; what
            a GPU target's CUDA Graphs are.
    """

    model: str
    folders: list[Path]
    report: dict[str, Any]
    instances: str = ""
    notes: tuple[str, ...] = ()


def build(
    spec_path: Path,
    repository: Path,
    target: Target = "cpu",
    progress: Callable[[str], None] = lambda _: None,
    user_ahead: bool = False,
    arch: str | None = None,
    layout: Layout | None = None,
) -> Built:
    """Compile the model that a spec names and write its Triton models.

    Args:
        spec_path: the build spec (YAML).
        repository: the model repository; other models in it are not touched.
        target: "cpu" (embedded server), "gpu" (`tensorrt_plan`) or "gpu-python" (the plan in a Python model).
        progress: called with the name of each pass.
        user_ahead: also write `<model>_user` and `<model>_slice`.
        arch: architecture of the machine that will serve, "x86_64" or "aarch64"; default: this one's. Only
            the kernel's library depends on it.
        layout: instead of the spec's.

    Raises:
        BiremeError: spec, model or repository are at fault; the repository is then as it was.
    """
    spec = read_spec(spec_path)
    if layout is not None:
        spec = spec.model_copy(update={"layout": layout})
    _check_layout(spec, target, user_ahead)
    instances = choose_instances(spec, target, usable_cores())
    captured = choose_graphs(spec, target, instances, user_ahead)
    native, notes = _native(arch or host_architecture(), progress)
    # Here, so that `bireme --help` and the client do not wait for TensorFlow.
    from bireme.compiler.pipeline import compile_model
    from bireme.compiler.reporting.report import as_data
    from bireme.compiler.reporting.report_graphs import graphs_line
    from bireme.compiler.reporting.report_html import as_html
    from bireme.compiler.tables.tidy import frugal, give_back
    from bireme.emitter.artifacts import Artifacts
    from bireme.emitter.layout import emit

    def passed(name: str) -> None:
        give_back()
        progress(name)

    with scratch_for(repository) as scratch, frugal():
        compiled = compile_model(spec, target, passed, scratch)
        report = as_data(compiled)
        if captured is not None:
            report["graphs"] = captured.as_data()
            notes = (*notes, graphs_line(report["graphs"]))
        ahead = None
        if user_ahead:
            passed("user_ahead")
            from bireme.compiler.ahead.user_ahead import compile_user_ahead
            from bireme.compiler.ahead.user_ahead_costs import add_to_report
            from bireme.compiler.ahead.user_ahead_timing import add_timing

            ahead = compile_user_ahead(compiled, spec, scratch)
            add_to_report(report, compiled, ahead)
        passed("emit")
        artifacts = Artifacts(
            plan=compiled.plan,
            files=compiled.files,
            dense_onnx=compiled.dense.SerializeToString(deterministic=True),
            example_request=compiled.example,
            provenance={**compiled.source, "spec": spec.served()},
            report=report,
            page=as_html(report).encode(),
            user_ahead=ahead.parts if ahead is not None else None,
            native=native,
        )
        chosen = {"instances": instances, "graph_users": captured.users if captured else ()}
        contract = compiled.contract.model_copy(update=chosen)
        folders = emit(artifacts, contract, repository)
        if ahead is not None:
            # After report.json and report.html, which hold no times: equal input gives equal bytes.
            progress("user_ahead: timing")
            add_timing(report["user_ahead"], compiled, ahead, scratch)
        return Built(spec.model, folders, report, explain(instances, spec, target), notes)


def _check_layout(spec: BuildSpec, target: Target, user_ahead: bool) -> None:
    """Refuse what one fused model cannot do, before the model is compiled.

    Raises:
        SpecError: naming the remedy.
    """
    if spec.layout != "fused":
        return
    where = f"{spec.model}: layout"
    if target != "cpu":
        message = f"fused is for the cpu target, not for {target}: TensorRT runs in a model of its own"
        raise SpecError(where, message, "build with `layout: ensemble`, or with --target cpu")
    if user_ahead:
        message = "fused has one model, and the user side ahead of time needs several"
        raise SpecError(where, message, "build with `layout: ensemble`, or without --user-ahead")


def _native(arch: str, progress: Callable[[str], None]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """(file name → content of the kernel's library, notes); without a compiler there is no library."""
    try:
        library = library_for(arch, native_folder(), progress=progress)
    except EmitError as error:
        return {}, (f"built without the kernel's library: {error.where}: {error.message}. {error.hint}",)
    return {library_name(arch): library.content}, (library.summary(),) if library.made_by else ()
