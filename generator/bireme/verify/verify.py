"""`bireme verify`: the served ensemble against the SavedModel it was built from, or against a golden file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from bireme.client import RankingClient
from bireme.emitter.manifest import check_repository, plan_folder, read_manifest
from bireme.errors import VerifyError
from bireme.losses import Loss
from bireme.requests import read_requests
from bireme.server.process import TritonServer
from bireme.spec import BuildSpec, read_spec
from bireme.verify.golden import Golden, read_golden, refuse_other_build, write_golden
from bireme.verify.original import original_scores, require_same_model
from bireme.verify.parity import Parity, compare_served
from bireme.verify.sampling import sample_requests, sample_together
from bireme.verify.tolerance import choose_tolerances
from bireme.verify.vocabularies import read_vocabularies
from bireme_runtime.plan import Plan

__all__ = ["Protocol", "read_vocabularies", "record", "verify", "verify_golden"]

Protocol = Literal["grpc", "http"]
Progress = Callable[[str, int, int], None]


def _quiet(_what: str, _done: int, _total: int) -> None:
    """Progress that nobody reads."""


def verify(
    spec_path: Path,
    repository: Path,
    urls: dict[Protocol, str],
    count: int,
    clients: int,
    tolerance: float | None = None,
    progress: Progress = _quiet,
) -> list[Parity]:
    """Compare served scores with TensorFlow's.

    Args:
        spec_path: the build spec; names the SavedModel and the recorded samples.
        repository: the emitted repository; its plan says what to sample.
        urls: protocol → `host:port`. Empty: the server is started for the purpose, on free ports, and both
            protocols are used.
        count: requests per protocol; on a GPU repository requests of several users come on top.
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
    manifest = _manifest(repository, spec.model)
    _check_spec(spec, manifest)
    golden = _sample(spec, repository, manifest, count, manifest["target"] != "cpu", progress)
    return _compare(golden, repository, manifest, urls, clients, tolerance, progress)


def record(spec_path: Path, repository: Path, path: Path, count: int, progress: Progress = _quiet) -> Golden:
    """Write what `verify` would send and what the original model answers, for a host without TensorFlow.

    Args:
        spec_path: the build spec.
        repository: what was built from it, for any target: its plan says what to sample.
        path: the golden file to write.
        count: requests; some of several users come on top.
        progress: called with (what, done, total).

    Raises:
        VerifyError: the SavedModel or the spec has changed since the build, or the file cannot be written.
        BiremeError: whatever is missing to get that far.
    """
    spec = read_spec(spec_path)
    manifest = _manifest(repository, spec.model)
    _check_spec(spec, manifest)
    require_same_model(spec, manifest["source"].get("saved_model_sha256"))
    golden = _sample(spec, repository, manifest, count, True, progress)
    write_golden(golden, path)
    return golden


def verify_golden(
    path: Path,
    repository: Path,
    urls: dict[Protocol, str],
    clients: int,
    tolerance: float | None = None,
    progress: Progress = _quiet,
) -> list[Parity]:
    """Compare served scores with recorded ones; needs neither TensorFlow nor the SavedModel nor the spec.

    Args:
        path: the golden file.
        repository: built from the same SavedModel and spec, for any target.
        urls: as for `verify`.
        clients: parallel clients.
        tolerance: as for `verify`.
        progress: called with (what, done, total).

    Returns:
        One result a protocol.

    Raises:
        VerifyError: a difference, a request that failed, or a golden file of another build.
        BiremeError: whatever is missing to get that far.
    """
    golden = read_golden(path)
    manifest = _manifest(repository, golden.model)
    refuse_other_build(golden, path, manifest)
    return _compare(golden, repository, manifest, urls, clients, tolerance, progress)


def _manifest(repository: Path, model: str) -> dict[str, Any]:
    check_repository(repository, model)
    return read_manifest(repository, model)


def _sample(
    spec: BuildSpec,
    repository: Path,
    manifest: Mapping[str, Any],
    count: int,
    several_users: bool,
    progress: Progress,
) -> Golden:
    """Sampled requests with TensorFlow's scores."""
    folder = plan_folder(repository, spec.model)
    plan = Plan.read(folder / "plan.json")
    words = read_vocabularies(plan, folder)
    recorded = read_requests(spec.samples, spec.user) if spec.samples is not None else []
    requests = sample_requests(plan, words, recorded, count)
    together = []
    for group in sample_together(plan, words, manifest["max_users"]) if several_users else ():
        together.append(list(range(len(requests), len(requests) + len(group))))
        requests.extend(group)
    scores = original_scores(spec, plan, requests, progress)
    return Golden(spec.model, manifest["source"], requests, scores, together)


def _compare(
    golden: Golden,
    repository: Path,
    manifest: Mapping[str, Any],
    urls: dict[Protocol, str],
    clients: int,
    tolerance: float | None,
    progress: Progress,
) -> list[Parity]:
    losses = [Loss.model_validate(loss) for loss in manifest.get("losses", [])]
    results = []
    with nullcontext() if urls else TritonServer(repository) as server:
        if server is not None:
            urls = {"grpc": server.grpc_url, "http": server.http_url}
        for protocol, url in urls.items():

            def connect(url: str = url, protocol: Protocol = protocol) -> RankingClient:
                return RankingClient(url, golden.model, protocol)

            def report(done: int, protocol: Protocol = protocol) -> None:
                progress(f"served over {protocol}", done, len(golden.requests))

            results.append(
                compare_served(
                    connect, protocol, golden.requests, golden.scores, clients, report, golden.together
                )
            )
    tolerances = choose_tolerances(tolerance, losses, golden.scores)
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
