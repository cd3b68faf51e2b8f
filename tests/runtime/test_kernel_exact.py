"""Hashes, lookups and logarithms of the C kernel, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from kernel_library import VARIANTS, kernel
from runtime_corpus import corpus

from bireme_runtime.plan import Bucketize, Feature, HashBucket, IntVocabulary, Numeric, Plan, Vocabulary
from bireme_runtime.preprocessor import Preprocessor
from bireme_runtime.text_steps import Compute, HashStrong
from bireme_runtime.vocabulary import IntVocabulary as IntVocabularyFile
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

Array = np.ndarray[Any, Any]


def _numbers(
    step: Any,
    values: Array,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
    files: Any = None,
    variant: str = "baseline",
) -> Array:
    """A step's ids, or a chain's numbers, of each value: the step's ids are handed over as numbers."""
    steps = (step,) if isinstance(step, Numeric) else (step, Numeric("out", step.name, (), "item", 0))
    return _run(steps, values, dtype, monkeypatch, files, variant)


def _numbers_of(steps: tuple[Any, ...], values: Array, monkeypatch: pytest.MonkeyPatch) -> Array:
    """The last step's ids."""
    return _run((*steps, Numeric("n", steps[-1].name, (), "item", 0)), values, "int64", monkeypatch)


def _run(
    steps: tuple[Any, ...],
    values: Array,
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
    files: Any = None,
    variant: str = "baseline",
) -> Array:
    n = len(values)
    plan = Plan(
        "exact", (Feature("x", "item", dtype, text="bytes"),), (), steps, 0, 1, "float32", (n,), pad=False
    )
    mine = Preprocessor(plan, {}, files or {}, library=kernel(variant, monkeypatch))
    assert mine.kernel is not None
    assert not mine.kernel.program.left
    prepared = [mine.kernel.prepare({"x": values.reshape(1, n)})]
    _, items, _ = mine.kernel.run(prepared, [])
    return items[:, 0]


def _texts() -> Array:
    values = np.empty(len(corpus()), object)
    values[:] = corpus()
    return values


def test_hashes_are_tensorflows(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _texts()
    buckets = 2**24 - 3  # FP32 numbers hold these ids exactly
    found = _numbers(HashBucket("h", "x", buckets), texts, "string", monkeypatch)
    np.testing.assert_array_equal(found, tf.strings.to_hash_bucket_fast(texts, buckets).numpy())
    key = (0x0123456789ABCDEF, 0x7EDCBA9876543210)
    found = _numbers(HashStrong("h", "x", buckets, key), texts, "string", monkeypatch)
    np.testing.assert_array_equal(found, tf.strings.to_hash_bucket_strong(texts, buckets, key).numpy())


@pytest.mark.parametrize(
    "buckets", [1, 2, 3, 10, 64, 1000, 2**20, 2**24 - 1, 2**31 - 1, 2**40 + 1, 2**62, 2**63 - 25]
)
def test_hashes_modulo_any_number(buckets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _texts()[:5000]
    exact = tf.strings.to_hash_bucket_fast(texts, buckets).numpy()
    hashed = HashBucket("h", "x", buckets)
    for part, function in ((exact % 2**20, "floormod"), (exact // 2**20 % 2**20, "floordiv")):
        steps = (
            hashed,
            Compute("a", function, ("h", 2**20), "int64"),
            Compute("b", "floormod", ("a", 2**20), "int64"),
        )
        found = _run((*steps, Numeric("n", "b", (), "item", 0)), texts, "string", monkeypatch)
        np.testing.assert_array_equal(found, part)


def test_vocabularies_find_what_they_hold_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = _texts()
    words = list(dict.fromkeys(texts[:60_000].tolist()))
    expected = {word: index for index, word in enumerate(words)}
    vocabulary = VocabularyFile.build(words, np.arange(len(words)))
    step = Vocabulary("v", "x", "words", len(words))
    found = _numbers(step, texts, "string", monkeypatch, {"words": vocabulary})
    np.testing.assert_array_equal(found, [expected.get(text, len(words)) for text in texts.tolist()])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_integer_vocabularies(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(size)
    keys = rng.choice(4000, size, replace=False) - 2000
    vocabulary = IntVocabularyFile.build(keys, np.arange(size))
    values = np.concatenate([np.arange(-2100, 2100), [2**62, -(2**63)]])
    found = _numbers(
        IntVocabulary("k", "x", "keys", size), values, "int64", monkeypatch, {"keys": vocabulary}
    )
    place = {int(key): index for index, key in enumerate(keys)}
    np.testing.assert_array_equal(found, [place.get(int(value), size) for value in values])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 64])
def test_bucketize_is_tensorflows(dtype: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(count)
    edges = np.unique(rng.normal(0, 50, count).astype(np.float32))
    values = (
        np.concatenate([rng.normal(0, 60, 20_000), edges, [1e-40, -1e-40, 3e38]])
        .clip(-2e9, 2e9)
        .astype(dtype)
    )
    found = _numbers(Bucketize("b", "x", tuple(edges.tolist())), values, dtype, monkeypatch)
    expected = tf.raw_ops.Bucketize(input=values, boundaries=edges.tolist()).numpy()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["log", "log1p", "sqrt", "tanh"])
def test_functions_are_right_to_the_last_bit_or_its_neighbour(
    name: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [
            10.0 ** rng.uniform(-37, 38, 100_000),
            rng.uniform(0.5, 2, 50_000),
            10.0 ** rng.uniform(-6, 1, 50_000),
        ]
    ).astype(np.float32)
    if name == "log1p":
        values = np.concatenate([values, -rng.uniform(0, 0.99999, 50_000).astype(np.float32)])
    found = _numbers(
        Numeric("n", "x", ((name, None),), "item", 0), values, "float32", monkeypatch, variant=variant
    )
    exact = getattr(np, name)(values.astype(np.float64))
    steps = np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert steps.max() <= (0.50001 if name != "tanh" else 2.0)


@pytest.mark.parametrize("constant", [1, 2, 3, 7, 1000, 65_537, 2**30 - 1, 2**31 - 1, 2**31, 2**40 + 1])
@pytest.mark.parametrize("most", [2**31 - 1, 2**63 - 1])
def test_remainders_are_exact(constant: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(constant % 1000)
    multiples = constant * rng.integers(0, most // constant + 1, 5000)
    values = np.concatenate([multiples, multiples - 1, multiples + 1, rng.integers(0, most, 5000), [0, most]])
    values = values[(values >= 0) & (values <= most)]
    if most > 2**31:
        values = np.concatenate([values, -values, [-(2**63)]])
    # Only what FP32 holds exactly comes out: the low and the high half one after the other.
    for divisor in (1, 2**20):
        steps = Compute("r", "floormod", ("x", constant), "int64")
        low = Compute("out", "floormod" if divisor == 1 else "floordiv", ("r", 2**20), "int64")
        found = _numbers_of((steps, low), values, monkeypatch)
        exact = values % constant
        np.testing.assert_array_equal(found, exact % 2**20 if divisor == 1 else exact // 2**20)
