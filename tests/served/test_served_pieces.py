"""A model with pieces on ONNX Runtime and on TensorFlow, served: right scores, bad requests fail alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from served_helpers import Array, executions, in_parallel
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.build import build
from bireme.client import RankingClient
from bireme.errors import ClientError
from bireme.requests import Request
from bireme.server.process import TritonServer
from bireme_runtime.plan import Plan, Subgraph

pytestmark = pytest.mark.triton
SPEC = (
    "model: mixed\nsaved_model: saved_model\nuser: [age, query]\nbuckets: [8, 16]\nsamples: samples.jsonl\n"
)
GOOD: list[Request] = [
    {
        "user": {"age": 2.5, "query": "red shoes"},
        "items": {
            "item": [0, 8, 3, 3, 5],
            "big": [0.1, 1e6, -3.0, 0.0, 7.7],
            "code": ["", "YQ", "YWI", "YWJj", "YWJjZA"],
        },
    },
    {
        "user": {"age": -1.0, "query": ""},
        "items": {
            "item": [k % 9 for k in range(13)],
            "big": [k / 7 for k in range(13)],
            "code": ["YWI"] * 13,
        },
    },
]
#: What is wrong → (item feature, value, what the server says): seen before a piece, by it, behind it.
BAD: dict[str, tuple[str, Any, str]] = {
    "an id beyond the rows of a piece": ("item", 9, "feature 'item', candidate 1: the value is 9"),
    "text that TensorFlow fails on": ("code", "%", "'item, code', candidate 1: .* fails: DecodeBase64: "),
    "a number that ONNX Runtime makes infinite": ("big", 1e300, "feature 'big', candidate 1: .*not finite"),
}
ROUNDS = 25


class Mixed(tf.Module):
    """Text in base 64 is TensorFlow's alone; doubles are ONNX Runtime's; rows 0 to 8 for every item."""

    def __init__(self) -> None:
        super().__init__()
        values = np.random.default_rng(0).normal(0, 0.5, (9, 3)).astype(np.float32)
        self.rows = tf.Variable(values)

    @tf.function(autograph=False)
    def call(self, age: Any, query: Any, item: Any, big: Any, code: Any) -> Any:
        text = tf.io.encode_base64(query)
        hashed = tf.gather(self.rows, tf.strings.to_hash_bucket_fast(text, 9))
        odd = tf.reduce_sum(tf.math.bessel_i0(tf.gather(self.rows, item)), 1)
        length = tf.cast(tf.strings.length(tf.io.decode_base64(code)), tf.float32)
        number = tf.cast(big * 0.1 + 0.5, tf.float32)
        return {"score": tf.reduce_sum(hashed, 1) * age + odd + number + length}

    def scores(self, request: Request) -> Array:
        """[N]"""
        user, items = request["user"], request["items"]
        count = len(items["item"])
        scores: Array = self.call(
            age=tf.fill([count], user["age"]),
            query=tf.fill([count], user["query"]),
            item=tf.constant(items["item"], tf.int64),
            big=tf.constant(items["big"], tf.float64),
            code=tf.constant(items["code"]),
        )["score"].numpy()
        return scores


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Its preprocess waits a little for more requests, so that those of two clients meet."""
    folder = tmp_path_factory.mktemp("mixed")
    model = Mixed()
    kinds = {"age": tf.float32, "query": tf.string, "item": tf.int64, "big": tf.float64, "code": tf.string}
    signature = model.call.get_concrete_function(**{n: tf.TensorSpec([None], t, n) for n, t in kinds.items()})
    tf.saved_model.save(model, str(folder / "saved_model"), signatures=signature)
    (folder / "bireme.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "samples.jsonl").write_text("\n".join(map(json.dumps, GOOD)), encoding="utf-8")
    repository = folder / "repository"
    build(folder / "bireme.yaml", repository)
    plan = Plan.read(next(repository.glob("mixed_preprocess/*/plan.json")))
    assert {s.engine for s in plan.steps if isinstance(s, Subgraph)} == {"onnx", "tensorflow"}
    path = repository / "mixed_preprocess" / "config.pbtxt"
    config = text_format.Parse(path.read_text(), ModelConfig())
    config.dynamic_batching.max_queue_delay_microseconds = 10_000
    path.write_text(text_format.MessageToString(config))
    with TritonServer(repository, exit_timeout=0) as server:
        yield server


def made_bad(case: str, request: Request) -> Request:
    name, value, _ = BAD[case]
    values = list(request["items"][name])
    values[1] = value
    return {**request, "items": {**request["items"], name: values}}


def asking_good(server: TritonServer, request: Request) -> Callable[[], None]:
    """A client that must get the right scores every time."""
    expected = Mixed().scores(request)

    def ask() -> None:
        with RankingClient(server.grpc_url) as client:
            for _ in range(ROUNDS):
                served = client.rank(request["user"], request["items"])["score"]
                np.testing.assert_allclose(served, expected, rtol=1e-6, atol=1e-5)

    return ask


def asking_bad(server: TritonServer, case: str, request: Request) -> Callable[[], None]:
    """A client that must get the reason every time."""
    bad = made_bad(case, request)

    def ask() -> None:
        with RankingClient(server.grpc_url) as client:
            for _ in range(ROUNDS):
                with pytest.raises(ClientError, match=BAD[case][2]):
                    client.rank(bad["user"], bad["items"])

    return ask


def asked_and_run(server: TritonServer, jobs: list[Callable[[], None]]) -> tuple[int, int]:
    """Requests to preprocess while all jobs ran at once, and its executions."""
    before = executions(server)["mixed_preprocess"]
    in_parallel(jobs)
    after = executions(server)["mixed_preprocess"]
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.parametrize("request_", GOOD)
def test_pieces_are_served(server: TritonServer, request_: Request) -> None:
    with RankingClient(server.grpc_url) as client:
        served = client.rank(request_["user"], request_["items"])["score"]
    np.testing.assert_allclose(served, Mixed().scores(request_), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_fails_alone_in_its_batch(server: TritonServer, case: str) -> None:
    """One client sends good requests, one bad ones: every execution of two holds one of each."""
    jobs = [asking_good(server, GOOD[0]), asking_bad(server, case, GOOD[1])]
    asked, runs = asked_and_run(server, jobs)
    assert asked == 2 * ROUNDS
    assert asked - runs >= ROUNDS // 3, f"good and bad met {asked - runs} times only"


def test_every_kind_of_bad_request_at_once(server: TritonServer) -> None:
    good = [asking_good(server, request) for request in GOOD]
    bad = [asking_bad(server, case, GOOD[turn % 2]) for turn, case in enumerate(BAD)]
    asked, runs = asked_and_run(server, [*good, *bad])
    assert asked == 5 * ROUNDS
    assert asked / runs > 2
