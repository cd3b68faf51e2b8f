"""`bireme verify`: the served ensemble against the SavedModel it was built from, or against a golden file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from bireme.verify.gpu import GpuCheck, watched_server
from bireme.verify.gpu_network import GpuNetwork, gpu_networks
from bireme.verify.original import original_scores, require_same_model
from bireme.verify.parity import Parity, compare_served
from bireme.verify.result import Verified
from bireme.verify.sampling import sample_requests, sample_together
from bireme.verify.served_orders import compare_served_orders
from bireme.verify.tolerance import Tolerance, choose_tolerances
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
    environment: Mapping[str, str] | None = None,
) -> Verified:
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
        environment: further variables of a server that is started for the purpose.

    Returns:
        What was found; `require()` raises what is wrong.

    Raises:
        BiremeError: whatever is missing to get that far.
    """
    spec = read_spec(spec_path)
    manifest = _manifest(repository, spec.model)
    _check_spec(spec, manifest)
    golden = _sample(spec, repository, manifest, count, manifest["target"] != "cpu", progress)
    check = _Check(golden, repository, manifest, clients, tolerance, progress)
    return check.run(urls, environment or {})


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
    environment: Mapping[str, str] | None = None,
) -> Verified:
    """Compare served scores with recorded ones; needs neither TensorFlow nor the SavedModel nor the spec.

    Args:
        path: the golden file.
        repository: built from the same SavedModel and spec, for any target.
        urls: as for `verify`.
        clients: parallel clients.
        tolerance: as for `verify`.
        progress: called with (what, done, total).
        environment: further variables of a server that is started for the purpose.

    Returns:
        What was found; `require()` raises what is wrong.

    Raises:
        VerifyError: a golden file of another build.
        BiremeError: whatever is missing to get that far.
    """
    golden = read_golden(path)
    manifest = _manifest(repository, golden.model)
    refuse_other_build(golden, path, manifest)
    check = _Check(golden, repository, manifest, clients, tolerance, progress)
    return check.run(urls, environment or {})


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


@dataclass(frozen=True)
class _Check:
    """One golden file against one repository; the arguments are those of `verify`."""

    golden: Golden
    repository: Path
    manifest: Mapping[str, Any]
    clients: int
    tolerance: float | None
    progress: Progress

    def run(self, urls: dict[Protocol, str], environment: Mapping[str, str]) -> Verified:
        """Against the servers named, or one that is started; on a GPU repository graphs and sequences too."""
        networks = gpu_networks(self.repository, self.manifest["models"], self.manifest["buckets"])
        if networks and not urls:
            return self._watched(networks, environment)
        if urls:
            found = Verified(self._scores(urls))
        else:
            with TritonServer(self.repository, environment=environment) as server:
                found = Verified(self._scores({"grpc": server.grpc_url, "http": server.http_url}))
        if networks:
            found.notes.append("CUDA Graphs and sequences were not looked at: the server's log is not ours")
        self._require_scores(found)
        return found

    def _watched(self, networks: Sequence[GpuNetwork], environment: Mapping[str, str]) -> Verified:
        check = GpuCheck.prepare(self.repository, networks, environment, self.progress)
        with watched_server(self.repository, environment) as watched:
            url = watched.server.grpc_url
            found = Verified(self._scores({"grpc": url, "http": watched.server.http_url}))
            with RankingClient(url, self.golden.model, "grpc") as client:
                found.ordered = compare_served_orders(
                    self.golden,
                    self.manifest["buckets"],
                    client,
                    {task: limit.value for task, limit in self._tolerances().items()},
                    lambda done, total: self.progress("ensemble in sequences", done, total),
                )
            check.ask(watched, self.progress)
            found.networks = check.judge(watched)
            self._require_scores(found)
            found.collect(str(watched.log))
            watched.keep = bool(found.failures)
        return found

    def _scores(self, urls: dict[Protocol, str]) -> list[Parity]:
        golden, results = self.golden, []
        for protocol, url in urls.items():

            def connect(url: str = url, protocol: Protocol = protocol) -> RankingClient:
                return RankingClient(url, golden.model, protocol)

            def report(done: int, protocol: Protocol = protocol) -> None:
                self.progress(f"served over {protocol}", done, len(golden.requests))

            results.append(
                compare_served(
                    connect,
                    protocol,
                    golden.requests,
                    golden.scores,
                    self.clients,
                    report,
                    golden.together,
                )
            )
        return results

    def _tolerances(self) -> dict[str, Tolerance]:
        losses = [Loss.model_validate(loss) for loss in self.manifest.get("losses", [])]
        return choose_tolerances(self.tolerance, losses, self.golden.scores)

    def _require_scores(self, found: Verified) -> None:
        tolerances = self._tolerances()
        for result in found.parity:
            found.attempt(partial(result.require, tolerances))


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
