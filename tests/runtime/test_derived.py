"""Derived strings and integers in a whole plan: both sides, sequences, several requests, bad ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from runtime_plans import PLAN, objects

from bireme_runtime.kernels import KERNELS
from bireme_runtime.plan import Embed, Feature, HashBucket, IdentityId, Mask, Numeric, Plan, Table, Vocabulary
from bireme_runtime.preprocessor import Features, Preprocessor, RequestError
from bireme_runtime.string_file import save_strings
from bireme_runtime.text_steps import (
    DERIVED_STEPS,
    Choose,
    Compute,
    Cross,
    Element,
    HashLegacy,
    HashStrong,
    Join,
    Measure,
    Parse,
    Pick,
    Same,
    Split,
    Text,
)
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

ROWS = 60
FEATURES = (
    Feature("city", "user", "string", text="bytes"),
    Feature("age", "user", "int32"),
    Feature("seen", "user", "string", -1),
    Feature("title", "item", "string", text="bytes"),
    Feature("code", "item", "int64"),
    Feature("price", "item", "string"),
    Feature("marks", "item", "string", -1),
)
#: id step → what it makes of a row's values, by TensorFlow where an op of it is meant
EXPECTED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "strong": lambda r: tf.strings.to_hash_bucket_strong(tf.strings.lower(r["title"]), ROWS, [3, 4]),
    "legacy": lambda r: tf.raw_ops.StringToHashBucket(string_tensor=r["title"], num_buckets=ROWS),
    "joined": lambda r: tf.strings.to_hash_bucket_fast(
        tf.strings.join([r["city"], b"\xff", tf.strings.lower(r["title"])], "_"), ROWS
    ),
    "crossed": lambda r: _sparse_cross(r),
    "folded": lambda r: tf.math.floormod(tf.constant(r["code"]) * 7 + int(r["age"]), ROWS),
    "wrapped": lambda r: tf.math.floormod(tf.cast(tf.constant(r["code"]), tf.int32) * 2**20, ROWS),
    "same": lambda r: tf.cast(tf.strings.lower(r["title"]) == r["city"], tf.int64),
    "picked": lambda r: _fast({b"a": b"\xffA", b"b": b""}.get(r["title"], b"none")),
    "chosen": lambda r: _fast(r["title"] if int(r["age"]) >= 30 else b"young"),
    "second": lambda r: _fast([*r["title"].split(b" "), b""][1]),
    "length": lambda r: tf.minimum(tf.strings.length(r["title"]), ROWS - 1),
}
STEPS = (
    Text("lower", "title", "lower"),
    HashStrong("strong", "lower", ROWS, (3, 4)),
    HashLegacy("legacy", "title", ROWS),
    Join("join", (("source", "city"), ("constant", "\udcff"), ("source", "lower")), "_"),
    HashBucket("joined", "join", ROWS),
    Cross("crossed", ("title", "age", "code", "city"), ROWS, 77),
    Compute("product", "mul", ("code", 7), "int64"),
    Compute("sum", "add", ("product", "age"), "int64"),
    Compute("folded", "floormod", ("sum", ROWS), "int64"),
    Compute("narrow", "mul", ("code", 2**20), "int32"),
    Compute("wrapped", "floormod", ("narrow", ROWS), "int32"),
    Same("same", ("lower", "city")),
    Vocabulary("word", "title", "words.bin", 2),
    Pick("pick", "word", "texts.bin"),
    HashBucket("picked", "pick", ROWS),
    Compute("is.old", "greater_equal", ("age", 30), "int32"),
    Choose("choose", "is.old", (("source", "title"), ("constant", "young"))),
    HashBucket("chosen", "choose", ROWS),
    Measure("bytes", "title", "length"),
    Compute("length", "minimum", ("bytes", ROWS - 1), "int32"),
    Split("parts", "title", (" ", -1, 3, "")),
    Element("part", "parts", 1, 3),
    HashBucket("second", "part", ROWS),
    HashBucket("part.hash", "parts", ROWS),
    Join("pairs", (("source", "seen"), ("source", "marks")), "|"),
    HashBucket("pairs.hash", "pairs", ROWS),
    Text("seen.lower", "seen", "lower"),
    IdentityId("age.row", "age"),
    Vocabulary("seen.word", "seen.lower", "words.bin", 2),
    Parse("amount", "price"),
    *(Embed(f"{name}.rows", name, "t", "item", 2 * i, 2) for i, name in enumerate(EXPECTED)),
    Embed("parts.sum", "part.hash", "t", "item", 22, 2, "mean", Mask("parts", "")),
    Embed("pairs.sum", "pairs.hash", "t", "item", 24, 2, "sum", Mask("pairs", "")),
    Numeric("amount.number", "amount", (("mul", 2.0),), "item", 26),
    Embed("seen.mean", "seen.word", "t", "user", 0, 2, "mean", Mask("seen.lower", "")),
    Embed("age.rows", "age.row", "t", "user", 2, 2),
)
TABLES = (Table("t", "arena.bin", "float32", 2, 0, ROWS),)
DERIVED = Plan("derived", FEATURES, TABLES, STEPS, 4, 27, "float32", (8,), pad=False)
ARENA = np.random.default_rng(5).normal(0, 1, (ROWS, 2)).astype(np.float32)


def _sparse_cross(row: Mapping[str, Any]) -> Any:
    columns = [tf.constant([[row[name]]]) for name in ("title", "age", "code", "city")]
    columns[1] = tf.cast(columns[1], tf.int64)
    crossed = tf.raw_ops.SparseCross(
        indices=[],
        values=[],
        shapes=[],
        dense_inputs=columns,
        hashed_output=True,
        num_buckets=ROWS,
        hash_key=77,
        out_type=tf.int64,
        internal_type=tf.int64,
    )
    return crossed[1][0]


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory: pytest.TempPathFactory) -> Preprocessor:
    folder: Path = tmp_path_factory.mktemp("derived")
    (folder / "plan.json").write_text(DERIVED.to_json(), encoding="utf-8")
    (folder / "arena.bin").write_bytes(ARENA.tobytes())
    VocabularyFile.build([b"a", b"b"], np.array([0, 1])).save(folder / "words.bin")
    save_strings(folder / "texts.bin", [b"\xffA", b"", b"none"])
    return Preprocessor.open(folder)


def make(seed: int, users: int, candidates: int, elements: int) -> dict[str, Any]:
    """A request; `seen` and `marks` have as many elements, as their join needs."""
    rng = np.random.default_rng(seed)
    texts = [b"a", b"b", b"A b  C", "Ä x".encode(), b"", b"\xff B", b"one two three four"]
    words = [b"a", b"B", b"", b"zz"]

    def some(pool: list[bytes], *shape: int) -> Any:
        return objects([pool[i] for i in rng.integers(0, len(pool), int(np.prod(shape)))], shape)

    pairs = (users, candidates)
    return {
        "city": some(texts[:5], users, 1),
        "age": rng.integers(0, ROWS, (users, 1)).astype(np.int32),
        "seen": some(words, users, elements),
        "title": some(texts, *pairs),
        "code": rng.integers(-(2**40), 2**40, pairs),
        "price": some([b"1.5", b" -3e2", b"0.1"], *pairs),
        "marks": some(words, *pairs, elements),
    }


def by_rows(request: Mapping[str, Any]) -> tuple[Any, Any]:
    """The same by TensorFlow, one row at a time."""
    users, candidates = request["title"].shape
    user, items = np.zeros((users, 4), np.float32), np.zeros((users, candidates, 27), np.float32)
    for u in range(users):
        seen = request["seen"][u].tolist()
        ids = [{b"a": 0, b"b": 1}.get(word.lower(), 2) for word in seen if word]
        user[u] = [*(ARENA[ids].mean(0) if ids else (0, 0)), *ARENA[request["age"][u, 0]]]
        for n in range(candidates):
            row = {name: request[name][u, n] for name in ("title", "code", "price")}
            row |= {name: request[name][u, 0] for name in ("city", "age")}
            made = [ARENA[int(make_id(row))] for make_id in EXPECTED.values()]
            parts = [ARENA[_fast(part)] for part in row["title"].split(b" ")[:3] if part]
            pairs = [_fast(b"|".join(pair)) for pair in zip(seen, request["marks"][u, n], strict=True)]
            sums = [np.mean(parts, 0) if parts else (0, 0), ARENA[pairs].sum(0)]
            items[u, n] = [*np.ravel([*made, *sums]), np.float32(float(row["price"])) * np.float32(2)]
    return user, items


def _fast(text: bytes) -> int:
    return int(tf.strings.to_hash_bucket_fast(text, ROWS))


def test_every_derived_kind_is_in_this_plan() -> None:
    assert {step.op for step in STEPS} >= set(DERIVED_STEPS)
    assert {step.op for step in (*STEPS, *PLAN.steps)} <= set(KERNELS)
    assert Plan.from_json(DERIVED.to_json()) == DERIVED


def test_requests_together_equal_rows_alone(preprocessor: Preprocessor) -> None:
    requests = [make(seed, 1 + seed % 2, 1 + seed, seed % 4) for seed in range(5)]
    for request, found in zip(requests, preprocessor.run(requests), strict=True):
        assert isinstance(found, Features), found
        user, items = by_rows(request)
        np.testing.assert_allclose(found.user, user, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found.items, items, rtol=1e-6, atol=1e-7)


def test_bad_request_fails_alone_and_names_the_feature(preprocessor: Preprocessor) -> None:
    good, no_number, unequal = make(1, 1, 3, 2), make(2, 1, 3, 2), make(3, 1, 3, 2)
    no_number["price"][0, 2] = b"cheap"
    unequal["seen"] = unequal["seen"][:, :1]
    found = preprocessor.run([no_number, good, unequal])
    assert str(found[0]) == "feature 'price', candidate 2: the value is no finite number"
    assert isinstance(found[1], Features)
    assert np.array_equal(found[1].items, preprocessor.run([good])[0].items)
    assert isinstance(found[2], RequestError)
    assert "feature 'marks', candidate 0" in str(found[2])
    assert "has 2 elements, that of 'seen' has 1" in str(found[2])
