"""FarmHash, bit for bit against TensorFlow's."""

import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bireme_runtime.farmhash import farmhash64, hash_bucket
from bireme_runtime.strings import FlatStrings

# Together they tell all 64 bits: the larger leaves two or three candidates, the smaller tells them apart.
MODULI = (2**63 - 1, 1_000_003)


def tensorflow_hash(strings, buckets):
    return tf.strings.to_hash_bucket_fast(tf.constant(strings, tf.string), buckets).numpy()


def check(strings):
    flat = FlatStrings.from_list(strings)
    for buckets in MODULI:
        ours = hash_bucket(flat, buckets)
        assert ours.dtype == np.int64
        np.testing.assert_array_equal(ours, tensorflow_hash(strings, buckets))


def random_strings(seed, lengths):
    rng = np.random.default_rng(seed)
    return [rng.bytes(length) for length in lengths]


def test_a_hundred_thousand_random_strings_of_mixed_length():
    rng = np.random.default_rng(7)
    check(random_strings(8, rng.integers(0, 301, 100_000).tolist()))


@pytest.mark.parametrize("count", [1, 3, 9])
def test_every_length_alone(count):
    for length in range(301):
        strings = random_strings(length, [length] * count)
        np.testing.assert_array_equal(
            hash_bucket(FlatStrings.from_list(strings), MODULI[0]), tensorflow_hash(strings, MODULI[0])
        )


def test_every_length_class_boundary_beside_every_other():
    edges = [0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 193]
    check(random_strings(1, [length for first in edges for second in edges for length in (first, second)]))


@pytest.mark.parametrize("huge", [1, 4, 5, 8])
def test_huge_strings_among_short_ones(huge):
    lengths = [70_000 + 63 * i for i in range(huge)] + list(range(200)) * 10
    check(np.random.default_rng(huge).permutation(np.array(random_strings(2, lengths), object)).tolist())


def test_text_of_many_scripts():
    check([word.encode() * k for word in ("é", "漢字", "😀", "ß\0", "\0") for k in range(60)])


@given(st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=40).map(str.encode)), min_size=1))
def test_whatever_hypothesis_finds(strings):
    check(strings)


def test_a_selection_hashes_as_its_strings_do():
    flat = FlatStrings.from_list(random_strings(3, list(range(150)) * 2))
    order = np.random.default_rng(4).permutation(len(flat))[:200]
    np.testing.assert_array_equal(farmhash64(flat.take(order)), farmhash64(flat)[order])


def test_nothing_hashes_to_nothing():
    hashes = farmhash64(FlatStrings.from_list([]))
    assert hashes.shape == (0,)
    assert hashes.dtype == np.uint64


def test_memory_follows_the_bytes_not_the_longest_string():
    flat = FlatStrings.from_list(random_strings(5, [70_000] + [20] * 2000))
    tracemalloc.start()
    farmhash64(flat)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * flat.data.size
