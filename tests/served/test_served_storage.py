"""Tables in float16 and int8, served: TensorFlow's scores with equally rounded tables, and near its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from served_helpers import Array, Tensors
from typer.testing import CliRunner

from bireme.build import build
from bireme.cli import app
from bireme.client import RankingClient
from bireme.errors import VerifyError
from bireme.requests import to_tensors
from bireme.server.process import TritonServer
from bireme.synthetic import make_requests
from bireme.verify.verify import verify
from bireme_runtime.plan import Plan

pytestmark = pytest.mark.triton
STORAGE: dict[str, str | dict[str, str]] = {
    "half": "float16",
    "bytes": "int8",
    "mixed": {"words*": "int8", "*shops*": "float16"},
}
#: Table → its storage type in each model; "cities" fits no pattern of the last.
TYPES = {
    "half": dict.fromkeys(("words", "shops", "cities"), "float16"),
    "bytes": dict.fromkeys(("words", "shops", "cities"), "int8"),
    "mixed": {"words": "int8", "shops": "float16", "cities": "float32"},
}
BUCKETS = (16, 50)


class Ranker(tf.Module):
    """Pooled (sum and mean of equal and of other tables) and single features; tables of odd widths."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(8)

        def weights(name: str, *shape: int) -> Any:
            return tf.Variable(rng.normal(0, 0.4, shape).astype(np.float32), name=name)

        self.words = weights("words", 60, 6)
        self.shops = weights("shops", 25, 3)
        self.cities = weights("cities", 12, 3)
        self.dense = weights("dense", 6 + 6 + 3 + 3 + 3 + 1, 1)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 5], tf.string, name="seen"),
            tf.TensorSpec([None], tf.int64, name="city"),
            tf.TensorSpec([None], tf.string, name="word"),
            tf.TensorSpec([None], tf.string, name="shop"),
            tf.TensorSpec([None, 4], tf.string, name="near"),
            tf.TensorSpec([None], tf.float32, name="price"),
        ]
    )
    def serve(self, seen: Any, city: Any, word: Any, shop: Any, near: Any, price: Any) -> dict[str, Any]:
        parts = [
            tf.reduce_sum(tf.gather(self.words, tf.strings.to_hash_bucket_fast(seen, 60)), 1),
            tf.gather(self.words, tf.strings.to_hash_bucket_fast(word, 60)),
            tf.gather(self.shops, tf.strings.to_hash_bucket_fast(shop, 25)),
            tf.reduce_mean(tf.gather(self.shops, tf.strings.to_hash_bucket_fast(near, 25)), 1),
            tf.gather(self.cities, city),
            price[:, None],
        ]
        return {"click": tf.sigmoid(tf.concat(parts, 1) @ self.dense)[:, 0]}

    def rounded(self, types: dict[str, str]) -> Ranker:
        """The same model with its tables rounded as their types round."""
        other = Ranker()
        for name, kind in types.items():
            table: Array = getattr(self, name).numpy()
            if kind == "float16":
                table = table.astype(np.float16).astype(np.float32)
            elif kind == "int8":
                scale = np.abs(table).max(axis=1, keepdims=True) / np.float32(127)
                table = np.rint(table / scale) * scale
            getattr(other, name).assign(table)
        return other


def scores_of(model: Ranker, tensors: Tensors) -> Array:
    """[N] for one user."""
    count = tensors["price"].shape[1]
    rows = {
        name: array[0] if name in ("word", "shop", "near", "price") else np.repeat(array, count, axis=0)
        for name, array in tensors.items()
    }
    rows["city"] = rows["city"].reshape(-1)
    scores: Array = model.serve(**{name: tf.constant(value) for name, value in rows.items()})["click"].numpy()
    return scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One repository of three models, which differ in the storage of their tables."""
    folder = tmp_path_factory.mktemp("stored")
    model = Ranker()
    tf.saved_model.save(model, str(folder / "saved_model"), signatures=model.serve)
    for name, storage in STORAGE.items():
        spec = {
            "model": name,
            "saved_model": "saved_model",
            "user": ["seen", "city"],
            "buckets": list(BUCKETS),
            "storage": storage,
        }
        (folder / f"{name}.yaml").write_text(json.dumps(spec), encoding="utf-8")
        build(folder / f"{name}.yaml", folder / "repository")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[TritonServer]:
    with TritonServer(folder / "repository", exit_timeout=0) as server:
        yield server


@pytest.mark.parametrize("name", STORAGE)
def test_scores_are_those_of_the_rounded_tables(server: TritonServer, folder: Path, name: str) -> None:
    plan = Plan.read(folder / "repository" / f"{name}_preprocess" / "1" / "plan.json")
    stored = {table.name.split("/")[-1].removesuffix(":0"): table.dtype for table in plan.tables}
    assert stored == TYPES[name]
    original = Ranker()
    rounded = original.rounded(TYPES[name])
    away = 0.0
    with RankingClient(server.grpc_url, name) as client:
        for request in make_requests(plan, {}, [1, 16, 17, 50] * 3, seed=4):
            tensors = to_tensors(plan.features, request)
            served = client.infer(tensors)["click"][0]
            np.testing.assert_allclose(served, scores_of(rounded, tensors), rtol=0, atol=1e-6)
            away = max(away, float(np.abs(served - scores_of(original, tensors)).max()))
    assert 1e-5 < away <= 0.01  # rounding shows, and storage_limits.score holds (scores are below 1)


def test_verify_takes_the_tolerance_from_the_build(server: TritonServer, folder: Path) -> None:
    for name in STORAGE:
        urls: Any = {"grpc": server.grpc_url}
        asked: Any = (folder / f"{name}.yaml", folder / "repository", urls)
        (result,) = verify(*asked, count=40, clients=4).require().parity
        limit = result.tolerances["click"]
        assert 1e-5 < result.max_difference <= limit.value <= 1e-5 + 0.01
        assert "for the tables' storage" in limit.reason
        with pytest.raises(VerifyError, match=r"in 'click' \(tolerance 1e-06: given by hand\)"):
            verify(*asked, count=40, clients=4, tolerance=1e-6).require()


def test_the_command_says_where_the_tolerance_comes_from(server: TritonServer, folder: Path) -> None:
    asked = ["verify", str(folder / "half.yaml"), "-r", str(folder / "repository"), "--requests", "20"]
    asked += ["--url", server.grpc_url, "--protocol", "grpc"]
    said = CliRunner().invoke(app, asked).stdout
    assert "equal the original model's" in said
    assert "the build allows 1e-05 + 0.01 of the largest score" in said
    (data,) = json.loads(CliRunner().invoke(app, [*asked, "--json", "--tolerance", "0.02"]).stdout)["scores"]
    assert data["tasks"]["click"]["tolerance"] == 0.02
    assert data["tasks"]["click"]["tolerance_from"] == "given by hand"
