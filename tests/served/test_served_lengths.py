"""Sequences of a fixed length on a real tritonserver: shorter ones are filled up, longer ones fail alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from served_helpers import PROTOCOLS, Bare, Tensors, in_parallel

from bireme.build import build
from bireme.client import RankingClient
from bireme.errors import ClientError
from bireme.server.process import TritonServer
from bireme.verify.verify import verify

pytestmark = pytest.mark.triton
LENGTH, TAGS = 6, 3
SPEC = f"""
model: attends
saved_model: saved_model
user: [clicks, times]
lengths: {{clicks: {LENGTH}, times: {LENGTH}}}   # the model itself takes any length, equal ones
padding: {{tags: "none"}}       # the model's own fixed length is {TAGS}
buckets: [8, 16]
"""


class Attends(tf.Module):
    """Attention over a history of any length, and over exactly three tags of every candidate.

    Of clicks 0 is absent, of tags "none".
    """

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.rows = tf.Variable(rng.normal(0, 0.5, (30, 4)).astype(np.float32))
        self.weights = tf.Variable(rng.normal(0, 0.5, (12, 1)).astype(np.float32))

    @tf.function(autograph=False)
    def call(self, clicks: Any, times: Any, item: Any, tags: Any) -> Any:
        wanted = tf.gather(self.rows, item)
        ages = tf.cast(times, tf.float32) * 0.1
        words = tf.where(
            tags == "none", tf.constant(0, tf.int64), 1 + tf.strings.to_hash_bucket_fast(tags, 29)
        )
        parts = [wanted, self._attended(wanted, clicks, ages), self._attended(wanted, words, 0.0)]
        return {"click": tf.sigmoid(tf.concat(parts, 1) @ self.weights)[:, 0]}

    def _attended(self, query: Any, ids: Any, ages: Any) -> Any:
        keys = tf.gather(self.rows, ids)
        dots = tf.where(ids > 0, tf.einsum("bd,bld->bl", query, keys) - ages, -1e9)
        return tf.einsum("bl,bld->bd", tf.nn.softmax(dots), keys)


MODEL = Attends()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The spec and the repository."""
    folder = tmp_path_factory.mktemp("lengths")
    shapes = {"clicks": [None, None], "times": [None, None], "item": [None], "tags": [None, TAGS]}
    signature = MODEL.call.get_concrete_function(
        **{
            name: tf.TensorSpec(shape, tf.string if name == "tags" else tf.int64, name)
            for name, shape in shapes.items()
        }
    )
    tf.saved_model.save(MODEL, str(folder / "saved_model"), signatures=signature)
    spec, repository = folder / "bireme.yaml", folder / "repository"
    spec.write_text(SPEC, encoding="utf-8")
    build(spec, repository)
    return spec, repository


@pytest.fixture(scope="module")
def server(built: tuple[Path, Path]) -> Iterator[TritonServer]:
    with TritonServer(built[1], exit_timeout=0) as running:
        yield running


def request_of(length: int, tags: int, count: int, seed: int = 0) -> Tensors:
    rng = np.random.default_rng(seed)
    return {
        "clicks": rng.integers(1, 30, (1, length)),
        "times": rng.integers(1, 30, (1, length)),
        "item": rng.integers(0, 30, (1, count)),
        "tags": rng.integers(1, 30, (1, count, tags)).astype(str).astype(object),
    }


def original(tensors: Tensors) -> np.ndarray[Any, Any]:
    """The SavedModel's scores; the history as it was sent, except that it attends to nothing in none."""
    clicks, times, (item,), (tags,) = (tensors[name] for name in ("clicks", "times", "item", "tags"))
    if not clicks.size:
        clicks = times = np.zeros((1, LENGTH), np.int64)
    filled = np.pad(tags, ((0, 0), (0, TAGS - tags.shape[1])), constant_values="none")
    scores: np.ndarray[Any, Any] = MODEL.call(
        np.repeat(clicks, len(item), 0), np.repeat(times, len(item), 0), item, filled
    )["click"].numpy()
    return scores


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("count", [1, 7, 16])
@pytest.mark.parametrize(("length", "tags"), [(LENGTH, TAGS), (LENGTH - 1, 1), (1, TAGS), (0, 0)])
def test_shorter_sequences_are_filled_up(
    server: TritonServer, protocol: Any, length: int, tags: int, count: int
) -> None:
    tensors = request_of(length, tags, count)
    np.testing.assert_allclose(Bare(server, protocol)(tensors, "attends")[0], original(tensors), atol=1e-6)


@pytest.mark.parametrize(
    ("length", "tags", "message"),
    [
        (LENGTH + 1, TAGS, "'clicks' has sequences of 7; the model takes at most 6"),
        (LENGTH, TAGS + 1, "'tags' has sequences of 4; the model takes at most 3"),
    ],
)
def test_longer_ones_fail_alone(server: TritonServer, length: int, tags: int, message: str) -> None:
    """Others that are waiting with them, of all lengths, get their scores."""

    def good(seed: int) -> None:
        send = Bare(server, "grpc")
        for turn in range(10):
            tensors = request_of((seed + turn) % (LENGTH + 1), (seed + turn) % (TAGS + 1), 1 + turn, seed)
            found = send(tensors, "attends")[0]
            np.testing.assert_allclose(found, original(tensors), atol=1e-6)

    def bad() -> None:
        with RankingClient(server.grpc_url) as client:
            for _ in range(10):
                with pytest.raises(ClientError, match=message):
                    client.infer(request_of(length, tags, 5))

    in_parallel([*(lambda seed=seed: good(seed) for seed in range(3)), bad, bad])


def test_the_example_request_and_sampled_ones(server: TritonServer, built: tuple[Path, Path]) -> None:
    """What `bireme serve` ranks at its start, and what `bireme verify` sends."""
    spec, repository = built
    example = json.loads((repository / "attends" / "example_request.json").read_text(encoding="utf-8"))
    with RankingClient(server.grpc_url) as client:
        assert client.rank(example["user"], example["items"])["click"].shape == (10,)
    found = verify(spec, repository, {"grpc": server.grpc_url}, count=60, clients=4, tolerance=1e-5)
    (parity,) = found.require().parity
    assert parity.requests == 60
