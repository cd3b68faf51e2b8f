"""What a SavedModel holds, before anything is written: the report of the passes, and a spec to start from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bireme.errors import BiremeError, SpecError
from bireme.requests import read_requests
from bireme.spec import BuildSpec, read_spec
from bireme.user_side import find_user_side

if TYPE_CHECKING:
    from bireme.compiler.pipeline import Compiled

__all__ = ["inspect_model"]


def inspect_model(
    path: Path, user: Sequence[str], signature: str, user_ahead: bool = False, samples: Path | None = None
) -> tuple[dict[str, Any], str]:
    """Compile in memory and report.

    Args:
        path: a SavedModel folder, or a build spec.
        user: user side inputs; with none given for a SavedModel, every input counts as a candidate's.
        signature: signature key, for a SavedModel.
        user_ahead: also report what `build --user-ahead` would save; needs a build spec.
        samples: sample requests, for a SavedModel: passes are checked on them, and with no `user` given, the
            user side is found in them.

    Returns:
        The report, and advice what to do next (empty if a spec was given).

    Raises:
        BiremeError: the model or the spec is at fault; for a SavedModel, `more` holds a spec to start from.
    """
    from bireme.compiler.pipeline import compile_model
    from bireme.compiler.reporting.report import as_data

    if path.is_file() and path.suffix in (".keras", ".h5", ".hdf5", ".pb", ".onnx"):
        raise SpecError(
            str(path),
            "is neither a SavedModel folder nor a build spec (YAML)",
            "export the model with `model.export(folder)` and name that folder",
        )
    if path.is_file():
        spec = read_spec(path)
        compiled = compile_model(spec, "cpu")
        report = as_data(compiled)
        if user_ahead:
            _add_user_ahead(report, compiled, spec)
        return report, ""
    if user_ahead:
        raise SpecError("--user-ahead", "needs a build spec", "write one first; this command prints a start")
    from bireme.compiler.load import SavedModel

    model = SavedModel(path, signature)
    known = model.features
    if samples is not None and not user:
        found = find_user_side(read_requests(samples), f"{samples}: the user side")
        user = [name for name in found if name in known]
    for name in user:
        if name not in known:
            raise SpecError(
                f"--user: '{name}'", "is not an input of the model", f"its inputs: {', '.join(known)}"
            )
    refused = model.unservable
    scores = {name: name for name in model.outputs if name not in refused} if refused else {}
    spec = BuildSpec(
        model="model",
        saved_model=path,
        user=tuple(user),
        signature=signature,
        samples=samples,
        outputs=scores,
    )
    text = _starter(spec, known, refused)
    try:
        report = as_data(compile_model(spec, "cpu"))
    except BiremeError as error:
        error.more = f"A spec to start from, once this is settled:\n\n{text}"
        raise
    advice = "A spec to start from; every other field has a default (see examples/obd/bireme.yaml):\n\n"
    return report, advice + text


def _starter(spec: BuildSpec, known: Iterable[str], refused: Mapping[str, str]) -> str:
    """The text of a spec with what is known already, and comments where the user must decide.

    Args:
        spec: what was inspected.
        known: all features of the model.
        refused: output that is left out → why.
    """
    starter: dict[str, Any] = {
        "model": "my_ranker",
        "saved_model": str(spec.saved_model.resolve()),
        "user": list(spec.user),
    }
    if spec.signature != "serving_default":
        starter["signature"] = spec.signature
    if spec.outputs:
        starter["outputs"] = dict(spec.outputs)
    if spec.samples is not None:
        starter["samples"] = str(spec.samples.resolve())
    text = yaml.safe_dump(starter, sort_keys=False, width=10_000, allow_unicode=True)
    for name, reason in refused.items():
        text += f"# outputs: '{name}' is left out: it {reason}\n"
    if not spec.user:
        text += f"# user: list every input that describes the user or the request, of: {', '.join(known)}\n"
    return text


def _add_user_ahead(report: dict[str, Any], compiled: Compiled, spec: BuildSpec) -> None:
    from bireme.compiler.ahead.user_ahead import compile_user_ahead
    from bireme.compiler.ahead.user_ahead_costs import add_to_report
    from bireme.compiler.ahead.user_ahead_timing import add_timing

    ahead = compile_user_ahead(compiled, spec)
    add_to_report(report, compiled, ahead)
    add_timing(report["user_ahead"], compiled, ahead)
