"""A model that ranks a list as a whole, served: N is a bucket, and another N fails alone with the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tritonclient.grpc
from served_helpers import PROTOCOLS, TOLERANCE, Bare, Tensors, executions, in_parallel
from tritonclient.utils import InferenceServerException

from bireme.build import build
from bireme.client import RankingClient
from bireme.errors import ClientError
from bireme.requests import to_tensors
from bireme.server.process import TritonServer
from bireme.synthetic import make_requests
from bireme.verify.verify import verify
from bireme_runtime.plan import Plan

pytestmark = pytest.mark.triton
BUCKETS = (8, 20)
SPEC = "model: listed\nsaved_model: saved_model\nuser: [age, seen]\nbuckets: [8, 20]\nlistwise: true\n"
REMEDY = "this model ranks a list as a whole, so a request must have exactly one of: 8, 20"


class ReRanker(tf.Module):
    """Self-attention across the candidates, and a softmax over the list."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        self.rows = tf.Variable(rng.normal(0, 0.6, (30, 4)).astype(np.float32), name="rows")
        self.mix = tf.Variable(rng.normal(0, 0.6, (10, 5)).astype(np.float32), name="mix")
        self.head = tf.Variable(rng.normal(0, 0.6, (5, 1)).astype(np.float32), name="head")

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="age"),
            tf.TensorSpec([None, 3], tf.string, name="seen"),
            tf.TensorSpec([None], tf.string, name="item"),
            tf.TensorSpec([None], tf.float32, name="price"),
        ]
    )
    def serve(self, age: Any, seen: Any, item: Any, price: Any) -> dict[str, Any]:
        history = tf.reduce_sum(tf.gather(self.rows, tf.strings.to_hash_bucket_fast(seen, 30)), 1)
        mine = tf.gather(self.rows, tf.strings.to_hash_bucket_fast(item, 30))
        x = tf.tanh(tf.concat([history, mine, price[:, None], age[:, None]], 1) @ self.mix)
        logits = ((x + tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x) @ self.head)[:, 0]
        return {"share": tf.nn.softmax(logits, axis=0), "logit": logits - tf.reduce_mean(logits)}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listed")
    model = ReRanker()
    tf.saved_model.save(model, str(folder / "saved_model"), signatures=model.serve)
    (folder / "bireme.yaml").write_text(SPEC, encoding="utf-8")
    build(folder / "bireme.yaml", folder / "repository")
    return folder / "bireme.yaml"


@pytest.fixture(scope="module")
def server(spec: Path) -> Iterator[TritonServer]:
    with TritonServer(spec.parent / "repository", exit_timeout=0) as server:
        yield server


@pytest.fixture(scope="module")
def plan(spec: Path) -> Plan:
    return Plan.read(spec.parent / "repository" / "listed_preprocess" / "1" / "plan.json")


def expected(tensors: Tensors) -> dict[str, Any]:
    """Task → [users, N], each user's list by itself."""
    model = ReRanker()
    users, count = tensors["price"].shape
    results: dict[str, list[Any]] = {"share": [], "logit": []}
    for user in range(users):
        rows = {
            "age": np.repeat(tensors["age"][user], count),
            "seen": np.stack([tensors["seen"][user]] * count),
            "item": tensors["item"][user],
            "price": tensors["price"][user],
        }
        for task, scores in model.serve(**{k: tf.constant(v) for k, v in rows.items()}).items():
            results[task].append(scores.numpy())
    return {task: np.stack(scores) for task, scores in results.items()}


def made(plan: Plan, counts: list[int]) -> list[Tensors]:
    return [to_tensors(plan.features, request) for request in make_requests(plan, {}, counts, seed=1)]


def test_lists_of_every_bucket_and_of_several_users(server: TritonServer, plan: Plan) -> None:
    single = made(plan, [8, 20, 8, 8])
    several = {name: np.concatenate([single[i][name] for i in (0, 2, 3)]) for name in single[0]}
    with RankingClient(server.grpc_url) as client:
        for tensors in (*single, several):
            served = client.infer(tensors)
            for task, scores in expected(tensors).items():
                assert served[task].shape == tensors["price"].shape
                np.testing.assert_allclose(served[task], scores, rtol=0, atol=TOLERANCE)
            np.testing.assert_allclose(served["share"].sum(1), 1, rtol=0, atol=1e-5)
    other = {**single[0], "price": single[0]["price"] + np.eye(1, 8, dtype=np.float32)}
    moved = np.abs(expected(other)["logit"] - expected(single[0])["logit"])[0, 1:]
    assert moved.min() > 1e-3  # the list matters


def test_verify_sends_lists_only(server: TritonServer, spec: Path) -> None:
    urls: Any = {"grpc": server.grpc_url, "http": server.http_url}
    found = verify(spec, spec.parent / "repository", urls, count=60, clients=4, tolerance=TOLERANCE)
    for result in found.require().parity:
        assert result.counts == set(BUCKETS)
        assert result.requests == 60


def test_another_length_fails_alone_and_says_what_to_send(server: TritonServer, plan: Plan) -> None:
    good, bad = made(plan, [8, 20]), made(plan, [1, 7, 9, 19])
    wanted = [expected(tensors)["logit"] for tensors in good]

    def ask_good(turn: int) -> Callable[[], float]:
        def ask() -> float:
            with RankingClient(server.grpc_url) as client:
                found = [
                    (client.infer(good[(turn + i) % 2])["logit"], wanted[(turn + i) % 2]) for i in range(40)
                ]
            return max(float(np.abs(served - scores).max()) for served, scores in found)

        return ask

    def ask_bad(turn: int) -> Callable[[], float]:
        def ask() -> float:
            send = Bare(server, PROTOCOLS[turn % 2])
            for i in range(40):
                tensors = bad[(turn + i) % 4]
                count = tensors["price"].shape[1]
                with pytest.raises(InferenceServerException, match=f"has {count} candidates; {REMEDY}"):
                    send(tensors, "listed")
            return 0.0

        return ask

    before = executions(server)
    worst = max(in_parallel([*map(ask_good, range(4)), *map(ask_bad, range(4))]))
    asked, runs = (
        b - a
        for a, b in zip(before["listed_preprocess"], executions(server)["listed_preprocess"], strict=True)
    )
    assert worst <= TOLERANCE
    assert asked == 8 * 40
    assert runs < asked  # good and bad met in one batch


def test_the_dnn_alone_pads_no_list(server: TritonServer, plan: Plan) -> None:
    """Whoever calls it directly gets no scores that zeros took part in."""
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        inputs = []
        for name, shape in (("user", (1, plan.user_width)), ("items", (1, 7, plan.item_width))):
            entry = tritonclient.grpc.InferInput(name, list(shape), "FP32")
            entry.set_data_from_numpy(np.ones(shape, np.float32))
            inputs.append(entry)
        with pytest.raises(InferenceServerException, match="exactly one of: 8, 20"):
            client.infer("listed_dnn", inputs)


def test_the_example_request_is_a_list(server: TritonServer, spec: Path) -> None:
    request = json.loads((spec.parent / "repository" / "listed" / "example_request.json").read_text())
    with RankingClient(server.grpc_url) as client:
        assert len(client.rank(request["user"], request["items"])["share"]) in BUCKETS
        with pytest.raises(ClientError, match=REMEDY):
            client.rank(request["user"], {name: values[:5] for name, values in request["items"].items()})
