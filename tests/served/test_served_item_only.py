"""Models without user features: built, served and verified against the SavedModel on a real tritonserver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from served_helpers import Bare, texts

from bireme.build import build
from bireme.client import RankingClient
from bireme.errors import ClientError
from bireme.server.process import TritonServer
from bireme.spec import Layout
from bireme.verify.verify import verify

pytestmark = pytest.mark.triton
SPEC = "model: shelf\nsaved_model: saved_model\nuser: []\nbuckets: [8, 16]\ndefaults: {price: 1.5}\n"


class Shelf(tf.Module):
    """Scores what stands on a shelf, whoever looks at it."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.rows = tf.Variable(rng.normal(0, 0.5, (9, 3)).astype(np.float32))
        self.weights = tf.Variable(rng.normal(0, 0.5, (4, 1)).astype(np.float32))

    @tf.function(autograph=False)
    def call(self, name: Any, price: Any) -> Any:
        rows = tf.gather(self.rows, tf.strings.to_hash_bucket_fast(name, 9))
        return {"click": tf.sigmoid(tf.concat([rows, price[:, None]], 1) @ self.weights)[:, 0]}


@pytest.mark.parametrize("layout", ["ensemble", "fused"])
def test_model_without_user_features_is_served(layout: Layout, tmp_path: Path) -> None:
    model = Shelf()
    kinds = {"name": tf.string, "price": tf.float32}
    signature = model.call.get_concrete_function(**{n: tf.TensorSpec([None], t, n) for n, t in kinds.items()})
    tf.saved_model.save(model, str(tmp_path / "saved_model"), signatures=signature)
    spec, repository = tmp_path / "bireme.yaml", tmp_path / "repository"
    spec.write_text(SPEC, encoding="utf-8")
    build(spec, repository, layout=layout)

    for parity in verify(spec, repository, {}, count=60, clients=4, tolerance=1e-5).require().parity:
        assert parity.requests == 60
        assert {1, 7, 8, 9, 15, 16} <= parity.counts

    names = ["red", "", "äö", "blue", "red"]
    wanted = model.call(tf.constant(names), tf.constant([0.0, 1.0, 2.0, 3.0, 4.0]))["click"].numpy()
    example = json.loads((repository / "shelf" / "example_request.json").read_text(encoding="utf-8"))
    with TritonServer(repository, exit_timeout=0) as server, RankingClient(server.grpc_url) as client:
        items = {"name": names, "price": [0.0, 1.0, 2.0, 3.0, 4.0]}
        np.testing.assert_allclose(client.rank({}, items)["click"], wanted, atol=1e-6)
        assert client.rank(example["user"], example["items"])["click"].shape == (10,)
        with pytest.raises(ClientError, match="'name'"):
            client.rank({}, {"price": [1.0]})
        with pytest.raises(ClientError, match="17 candidates"):
            client.rank({}, {"name": ["red"] * 17})

        bare = Bare(server, "grpc")  # two users at once, the default left out
        two = np.concatenate([texts([n.encode() for n in names]), texts([b"x"] * 5)])
        priced = np.full((2, 5), 1.5, np.float32)
        for scores, row, price in zip(bare({"name": two}, "shelf"), two, priced, strict=True):
            expected = model.call(tf.constant(list(row)), tf.constant(price))["click"].numpy()
            np.testing.assert_allclose(scores, expected, atol=1e-6)
