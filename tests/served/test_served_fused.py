"""The fused layout on a real tritonserver: TensorFlow's scores, the ensemble's requests and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from bad_requests import BAD
from served_helpers import PROTOCOLS, TOLERANCE, Bare, Original, Tensors, executions, in_parallel
from test_served_listwise import BUCKETS, ReRanker
from test_served_listwise import SPEC as LISTED
from tritonclient.utils import InferenceServerException

from bireme.build import build
from bireme.client import RankingClient
from bireme.emitter.manifest import plan_folder
from bireme.requests import Request, to_tensors
from bireme.server.process import TritonServer
from bireme.synthetic import edge_counts, make_requests
from bireme.verify.verify import read_vocabularies, verify
from bireme_runtime.plan import Plan

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def repository(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fused")
    build(spec, folder, layout="fused")
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[TritonServer]:
    with TritonServer(repository, exit_timeout=0) as server:
        yield server


@pytest.fixture(scope="module")
def plan(repository: Path) -> Plan:
    return Plan.read(plan_folder(repository, "obd") / "plan.json")


@pytest.fixture(scope="module")
def original(spec: Path, plan: Plan) -> Original:
    return Original(spec, plan.features)


@pytest.fixture
def tensors(repository: Path, plan: Plan) -> Tensors:
    request: Request = json.loads((repository / "obd" / "example_request.json").read_text())
    return to_tensors(plan.features, request)


def test_served_scores_are_tensorflows(
    spec: Path, repository: Path, server: TritonServer, plan: Plan
) -> None:
    before = executions(server)
    urls = {"grpc": server.grpc_url, "http": server.http_url}
    for result in verify(spec, repository, urls, 300, 8, TOLERANCE).require().parity:  # type: ignore[arg-type]
        assert result.counts >= set(edge_counts(plan.buckets))
    assert list(before) == ["obd"]
    asked, runs = (now - then for now, then in zip(executions(server)["obd"], before["obd"], strict=True))
    assert asked == 600
    assert runs < asked  # requests do run together


def test_bad_requests_fail_alone(
    repository: Path, server: TritonServer, plan: Plan, original: Original, tensors: Tensors
) -> None:
    """Four clients send good requests, four send every bad one: right scores here, the right reason there."""
    words = read_vocabularies(plan, plan_folder(repository, "obd"))
    made = [to_tensors(plan.features, r) for r in make_requests(plan, words, [1, 20, 80, 81, 512])]
    cases = [(request, original.scores(request)) for request in made]

    def good(turn: int) -> Callable[[], float]:
        def ask() -> float:
            send = Bare(server, PROTOCOLS[turn % 2])
            found = [(send(request), scores) for request, scores in islice(cycle(cases), turn, turn + 60)]
            return max(float(np.abs(served - scores).max()) for served, scores in found)

        return ask

    def bad(turn: int) -> Callable[[], float]:
        def ask() -> float:
            send = Bare(server, PROTOCOLS[turn % 2])
            for case in islice(cycle(BAD), turn, turn + len(BAD)):
                change, message = BAD[case]
                with pytest.raises(InferenceServerException, match=message):
                    send(change(tensors))
            return 0.0

        return ask

    assert max(in_parallel([*map(good, range(4)), *map(bad, range(4))])) <= TOLERANCE


def test_the_client_finds_it_by_itself(server: TritonServer, original: Original, tensors: Tensors) -> None:
    for protocol, url in (("grpc", server.grpc_url), ("http", server.http_url)):
        with RankingClient(url, protocol=protocol) as client:  # type: ignore[arg-type]
            assert client.features == original._features
            scores = client.infer(tensors)["click"]
        np.testing.assert_allclose(scores, original.scores(tensors), rtol=0, atol=TOLERANCE)


def test_lists_stay_whole(tmp_path: Path) -> None:
    model = ReRanker()
    tf.saved_model.save(model, str(tmp_path / "saved_model"), signatures=model.serve)
    spec, repository = tmp_path / "bireme.yaml", tmp_path / "repository"
    spec.write_text(f"{LISTED}\nlayout: fused\n", encoding="utf-8")
    build(spec, repository)
    for result in verify(spec, repository, {}, count=40, clients=4, tolerance=TOLERANCE).require().parity:
        assert result.counts == set(BUCKETS)
    with TritonServer(repository, exit_timeout=0) as server, RankingClient(server.grpc_url) as client:
        bad = {"item": ["a"] * 7, "price": [1.0] * 7}
        with pytest.raises(Exception, match="7 candidates; this model ranks a list as a whole"):
            client.rank({"age": 1.0, "seen": ["a", "b", "c"]}, bad)
