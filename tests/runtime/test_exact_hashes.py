"""Every hash, lookup and cross against TensorFlow's own op on the whole corpus, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from runtime_corpus import corpus, flat, integers, tensor

from bireme_runtime.farmhash import farmhash64, hash_bucket
from bireme_runtime.hash64 import hash64, mix_fingerprints
from bireme_runtime.siphash import siphash64
from bireme_runtime.strings import FlatStrings
from bireme_runtime.vocabulary import IntVocabulary, Vocabulary

HUGE = 2**62 + 1  # nearly all bits of a hash decide


def test_the_corpus_is_what_the_tests_promise() -> None:
    texts = corpus()
    assert len(texts) >= 100_000
    sizes = {len(text) for text in texts}
    assert set(range(301)) <= sizes
    assert max(sizes) == 70_000
    assert b"" in texts
    assert sum(b"\0" in text for text in texts) > 1000
    assert sum(any(byte > 127 for byte in text) for text in texts) > 1000


@pytest.mark.parametrize("buckets", [1, 7, 1000, HUGE])
def test_farmhash(buckets: int) -> None:
    assert np.array_equal(hash_bucket(flat(), buckets), tf.strings.to_hash_bucket_fast(tensor(), buckets))


@pytest.mark.parametrize("key", [(0, 0), (137, 9), (-1, 2**63 - 1)])
def test_siphash(key: tuple[int, int]) -> None:
    found = (siphash64(flat(), key) % np.uint64(HUGE)).view(np.int64)
    assert np.array_equal(found, tf.strings.to_hash_bucket_strong(tensor(), HUGE, key=list(key)))


def test_hash64() -> None:
    found = (hash64(flat()) % np.uint64(HUGE)).view(np.int64)
    expected = tf.raw_ops.StringToHashBucket(string_tensor=tensor(), num_buckets=HUGE)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("hashes", [farmhash64, hash64, lambda strings: siphash64(strings, (5, 6))])
def test_a_string_alone_hashes_as_among_others(hashes) -> None:
    """The paths for few strings, and for strings of one length, differ from those for many."""
    rows = [*range(40), *range(2000, 2301), *range(len(flat()) - 18, len(flat()))]
    together = hashes(flat())
    for row in rows:
        assert hashes(FlatStrings.from_list([corpus()[row]]))[0] == together[row]
    assert hashes(FlatStrings.from_list([])).size == 0


@pytest.mark.parametrize("buckets", [13, 0])
def test_cross_of_a_string_and_an_integer(buckets: int) -> None:
    key = 956888297470
    _, expected, _ = tf.raw_ops.SparseCross(
        indices=[],
        values=[],
        shapes=[],
        dense_inputs=[tensor()[:, None], tf.constant(integers())[:, None], tensor()[::-1][:, None]],
        hashed_output=True,
        num_buckets=buckets,
        hash_key=key,
        out_type=tf.int64,
        internal_type=tf.int64,
    )
    hashes = farmhash64(flat())
    mixed = mix_fingerprints(key, [hashes, integers().view(np.uint64), hashes[::-1]])
    assert np.array_equal((mixed % np.uint64(buckets or 2**63 - 1)).view(np.int64), expected)


def test_vocabulary() -> None:
    keys = list(dict.fromkeys([*corpus()[::7], *corpus()[-10:]]))
    ids = np.random.default_rng(1).integers(0, 2**40, len(keys))
    source = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(ids))
    expected = tf.lookup.StaticHashTable(source, -1).lookup(tensor())
    assert np.array_equal(Vocabulary.build(keys, ids).lookup(flat(), -1), expected)
    assert (expected.numpy() == -1).sum() > 50_000


def test_integer_vocabulary() -> None:
    keys = np.unique(integers()[::7])
    ids = np.random.default_rng(1).integers(0, 2**40, len(keys))
    source = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(ids))
    expected = tf.lookup.StaticHashTable(source, -1).lookup(tf.constant(integers()))
    assert np.array_equal(IntVocabulary.build(keys, ids).lookup(integers(), -1), expected)
