"""`bireme verify`: the served ensemble against the SavedModel it was built from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bireme.client import RankingClient
from bireme.emitter.manifest import check_repository, plan_folder, read_manifest
from bireme.errors import VerifyError
from bireme.losses import Loss
from bireme.requests import Request, read_requests, to_rows
from bireme.server.process import TritonServer
from bireme.spec import BuildSpec, read_spec
from bireme.verify.parity import Parity, Scores, compare_served
from bireme.verify.sampling import sample_requests
from bireme.verify.tolerance import choose_tolerances
from bireme_runtime.plan import IntVocabulary, Plan, Vocabulary
from bireme_runtime.vocabulary import IntVocabulary as IntVocabularyFile
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

__all__ = ["Protocol", "read_vocabularies", "verify"]

Protocol = Literal["grpc", "http"]


def verify(
    spec_path: Path,
    repository: Path,
    urls: dict[Protocol, str],
    count: int,
    clients: int,
    tolerance: float | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Parity]:
    """Compare served scores with TensorFlow's.

    Args:
        spec_path: the build spec; names the SavedModel and the recorded samples.
        repository: the emitted repository; its plan says what to sample.
        urls: protocol → `host:port`. Empty: the server is started for the purpose, on free ports, and both
            protocols are used.
        count: requests per protocol.
        clients: parallel clients.
        tolerance: largest allowed |served − original|; None: what the build allowed, see tolerance.py.
        progress: called with (what, done, total).

    Returns:
        One result a protocol.

    Raises:
        VerifyError: a difference, or a request that failed.
        BiremeError: whatever is missing to get that far.
    """
    spec = read_spec(spec_path)
    check_repository(repository, spec.model)
    manifest = read_manifest(repository, spec.model)
    _check_spec(spec, manifest)
    losses = [Loss.model_validate(loss) for loss in manifest.get("losses", [])]
    folder = plan_folder(repository, spec.model)
    plan = Plan.read(folder / "plan.json")
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    requests = sample_requests(plan, read_vocabularies(plan, folder), recorded, count)
    expected = _original_scores(spec_path, plan, requests, progress)
    results = []
    with nullcontext() if urls else TritonServer(repository) as server:
        if server is not None:
            urls = {"grpc": server.grpc_url, "http": server.http_url}
        for protocol, url in urls.items():

            def connect(url: str = url, protocol: Protocol = protocol) -> RankingClient:
                return RankingClient(url, spec.model, protocol)

            def report(done: int, protocol: Protocol = protocol) -> None:
                progress(f"served over {protocol}", done, len(requests))

            results.append(compare_served(connect, protocol, requests, expected, clients, report))
    tolerances = choose_tolerances(tolerance, losses, expected)
    for result in results:
        result.require(tolerances)
    return results


def _check_spec(spec: BuildSpec, manifest: Mapping[str, Any]) -> None:
    """Refuse a repository built from another spec: its scores would be right, but not what is meant."""
    built = manifest["source"].get("spec")
    if built is None:
        raise VerifyError(spec.model, "was built by an older bireme", "run `bireme build` again")
    for name, wanted in spec.served().items():
        if built.get(name) != wanted:
            raise VerifyError(
                f"{spec.model}: {name}",
                f"the repository was built with {built.get(name)}, the spec now says {wanted}",
                "run `bireme build` again",
            )


def read_vocabularies(plan: Plan, folder: Path) -> dict[str, list[bytes]]:
    """Vocabulary file → its keys, from the emitted files."""
    words = {}
    for step in plan.steps:
        if isinstance(step, Vocabulary):
            words[step.file] = VocabularyFile.load(folder / step.file).keys()
        elif isinstance(step, IntVocabulary):
            words[step.file] = [b"%d" % key for key in IntVocabularyFile.load(folder / step.file).keys]
    return words


def _original_scores(
    spec_path: Path, plan: Plan, requests: Sequence[Request], progress: Callable[[str, int, int], None]
) -> list[Scores]:
    """The SavedModel's scores, request by request: a sequence has the length that was sent."""
    from bireme.compiler.load import SavedModel, fill_unused  # TensorFlow, only now

    spec = read_spec(spec_path)
    model = SavedModel(spec.saved_model, spec.signature, spec.padding)
    names = spec.outputs or {name: name for name in model.outputs}
    scores: list[Scores] = []
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
