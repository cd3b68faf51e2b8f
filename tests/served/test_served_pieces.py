"""A model with pieces on ONNX Runtime and on TensorFlow, served: right scores, bad requests fail alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bireme.build import build
from bireme.client import RankingClient
from bireme.errors import ClientError
from bireme.server.process import TritonServer
from bireme_runtime.plan import Plan, Subgraph

pytestmark = pytest.mark.triton
SPEC = "model: mixed\nsaved_model: saved_model\nuser: [age, query]\nbuckets: [8, 16]\n"


class Mixed(tf.Module):
    """Text in base 64 is TensorFlow's alone; doubles are ONNX Runtime's; rows 0 to 8 for every item."""

    def __init__(self) -> None:
        super().__init__()
        values = np.random.default_rng(0).normal(0, 0.5, (9, 3)).astype(np.float32)
        self.rows = tf.Variable(values)

    @tf.function(autograph=False)
    def call(self, age: Any, query: Any, item: Any, big: Any) -> Any:
        text = tf.io.encode_base64(query)
        hashed = tf.gather(self.rows, tf.strings.to_hash_bucket_fast(text, 9))
        odd = tf.reduce_sum(tf.math.bessel_i0(tf.gather(self.rows, item)), 1)
        return {"score": tf.reduce_sum(hashed, 1) * age + odd + tf.cast(big * 0.1 + 0.5, tf.float32)}


def test_pieces_are_served(tmp_path: Path) -> None:
    model = Mixed()
    kinds = {"age": tf.float32, "query": tf.string, "item": tf.int64, "big": tf.float64}
    signature = model.call.get_concrete_function(**{n: tf.TensorSpec([None], t, n) for n, t in kinds.items()})
    tf.saved_model.save(model, str(tmp_path / "saved_model"), signatures=signature)
    (tmp_path / "bireme.yaml").write_text(SPEC, encoding="utf-8")
    repository = tmp_path / "repository"
    build(tmp_path / "bireme.yaml", repository)
    plan = Plan.read(next(repository.glob("mixed_preprocess/*/plan.json")))
    assert {s.engine for s in plan.steps if isinstance(s, Subgraph)} == {"onnx", "tensorflow"}

    user = {"age": 2.5, "query": "red shoes"}
    items = {"item": [0, 8, 3, 3, 5], "big": [0.1, 1e6, -3.0, 0.0, 7.7]}
    rows = {
        "age": tf.fill([5], 2.5),
        "query": tf.fill([5], "red shoes"),
        "item": tf.constant(items["item"], tf.int64),
        "big": tf.constant(items["big"], tf.float64),
    }
    expected = model.call(**rows)["score"].numpy()
    with TritonServer(repository, exit_timeout=0) as server, RankingClient(server.grpc_url) as client:
        np.testing.assert_allclose(client.rank(user, items)["score"], expected, rtol=1e-6, atol=1e-5)
        with pytest.raises(ClientError, match="feature 'item', candidate 1: the value is 9"):
            client.rank(user, {**items, "item": [0, 9, 3, 3, 5]})
        np.testing.assert_allclose(client.rank(user, items)["score"], expected, rtol=1e-6, atol=1e-5)
