"""Vocabularies against a Python dict, on keys chosen to confuse them."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme_runtime import vocabulary
from bireme_runtime.strings import FlatStrings
from bireme_runtime.vocabulary import IntVocabulary, Vocabulary

DEFAULT = -77
# Keys of few letters collide in every way: prefixes of each other, trailing NULs, one differing byte.
CONFUSING = st.one_of(
    st.binary(max_size=12),
    st.text("ab\0", max_size=20).map(str.encode),
    st.integers(0, 140).map(lambda n: b"k" * n),
    st.integers(0, 140).map(lambda n: b"k" * n + b"\0"),
    st.integers(60, 70).map(lambda n: b"k" * n + b"z"),
)


def check(keys, queries):
    ids = np.random.default_rng(len(keys)).integers(-(2**63), 2**63 - 1, len(keys))
    vocab = Vocabulary.build(keys, ids)
    known = dict(zip(keys, ids.tolist(), strict=True))
    found = vocab.lookup(FlatStrings.from_list(queries), DEFAULT)
    assert found.dtype == np.int64
    assert found.tolist() == [known.get(query, DEFAULT) for query in queries]
    assert len(vocab) == len(keys)


@given(st.lists(CONFUSING, unique=True), st.lists(CONFUSING))
def test_as_a_dict(keys, queries):
    check(keys, keys + queries)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000, 60_000])
def test_numbered_keys_and_their_neighbours(count):
    keys = [b"item_%d" % i for i in range(count)]
    neighbours = (
        [key[:-1] for key in keys] + [key + b"\0" for key in keys] + [key[:-1] + b"x" for key in keys]
    )
    check(keys, keys + neighbours + [b"", b"\0", b"item_", b"item_%d" % count])


def test_keys_that_differ_in_any_single_byte():
    base = bytearray(
        b"the same bytes in every key, over more than one block of sixty-four bytes, and then some"
    )
    keys = []
    for place in range(len(base)):
        for value in (0, 1, 128, 255):
            changed = base.copy()
            changed[place] = value
            keys.append(bytes(changed))
    keys = sorted(set(keys))
    check(keys[::2], keys)


def test_words_that_swap_places():
    words = [b"%08d" % i for i in range(40)]
    pairs = [first + second for first in words for second in words]
    check(pairs[::3], pairs)


def test_zeros_of_every_length():
    check([bytes(n) for n in range(0, 300, 2)], [bytes(n) for n in range(301)])


def test_one_very_long_key_costs_its_own_bytes():
    long = bytes(range(256)) * 300
    keys = [long, long[:-1] + b"?", *(b"%d" % i for i in range(2000))]
    queries = [*keys, long + b"!", long[:-1], long[:-1] + b"!", *(b"x%d" % i for i in range(2000))]
    check(keys, queries)
    vocab, flat = Vocabulary.build(keys, np.arange(len(keys))), FlatStrings.from_list(queries)
    tracemalloc.start()
    vocab.lookup(flat, DEFAULT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * flat.data.size


def test_a_string_with_the_hash_of_a_key_is_still_unknown(monkeypatch):
    keys = [b"alpha", b"beta", b"gamma"]
    vocab = Vocabulary.build(keys, np.arange(3))
    real = vocabulary._hash
    forged = real(FlatStrings.from_list([b"beta"]), vocab.coefficients)
    monkeypatch.setattr(vocabulary, "_hash", lambda strings, *_: np.repeat(forged, len(strings)))
    queries = [b"alpha", b"beta", b"betA", b"beta\0", b"bet", b""]
    assert vocab.lookup(FlatStrings.from_list(queries), DEFAULT).tolist() == [-77, 1, -77, -77, -77, -77]


@pytest.mark.parametrize("poison", [5, 2**64 - 1], ids=["collision", "sentinel"])
def test_a_hash_function_that_cannot_tell_keys_apart_is_replaced(monkeypatch, poison):
    keys = [b"alpha", b"beta", b"gamma"]
    real, seeds = vocabulary._coefficients, []

    def coefficients(seed, longest):
        seeds.append(seed)
        return np.full_like(real(seed, longest), poison) if seed < 2 else real(seed, longest)

    def poisoned_hash(strings, values, parts=None):
        return (
            real_hash(strings, values, parts)
            if (values != poison).any()
            else np.full(len(strings), poison, np.uint64)
        )

    real_hash = vocabulary._hash
    monkeypatch.setattr(vocabulary, "_coefficients", coefficients)
    monkeypatch.setattr(vocabulary, "_hash", poisoned_hash)
    vocab = Vocabulary.build(keys[:1] if poison > 5 else keys, np.arange(1 if poison > 5 else 3))
    assert vocab.seed == 2
    assert vocab.lookup(FlatStrings.from_list([b"alpha", b"delta"]), DEFAULT).tolist() == [0, DEFAULT]


def test_a_key_that_occurs_twice_is_named():
    with pytest.raises(ValueError, match=r"key b'caf\\xc3\\xa9' occurs twice, at 1 and 3"):
        Vocabulary.build([b"a", "café".encode(), b"", "café".encode()], np.arange(4))
    with pytest.raises(ValueError, match="key -5 occurs twice, at 0 and 2"):
        IntVocabulary.build([-5, 3, -5], np.arange(3))


@pytest.mark.parametrize("kind", [Vocabulary, IntVocabulary])
def test_ids_must_match_keys(kind):
    with pytest.raises(ValueError, match="2 keys need as many ids"):
        kind.build([b"1", b"2"] if kind is Vocabulary else [1, 2], np.arange(3))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_as_a_dict(keys, queries):
    ids = np.arange(len(keys)) * 3 - 5
    vocab, known = IntVocabulary.build(keys, ids), dict(zip(keys, ids.tolist(), strict=True))
    near = [value for key in keys for value in (key - 1, key + 1) if -(2**63) <= value < 2**63]
    asked = keys + queries + near
    found = vocab.lookup(np.array(asked, np.int64), DEFAULT)
    assert found.tolist() == [known.get(query, DEFAULT) for query in asked]
    assert found.dtype == np.int64
    assert len(vocab) == len(keys)


def test_integers_of_any_width_and_shape():
    vocab = IntVocabulary.build([7, -1], np.array([70, -10]))
    found = vocab.lookup(np.array([[7, 0], [-1, 7]], np.int32), DEFAULT)
    assert found.tolist() == [[70, DEFAULT], [-10, 70]]


def build_string(keys, tmp_path, name="a.vocab"):
    Vocabulary.build(keys, np.arange(len(keys)) + 5).save(tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize("count", [0, 1, 500])
def test_saved_and_loaded_is_the_same(count, tmp_path):
    keys = [b"key%d" % (i * i) for i in range(count)]
    path = build_string(keys, tmp_path)
    loaded = Vocabulary.load(path)
    queries = FlatStrings.from_list([*keys, b"other", b""])
    assert loaded.lookup(queries, DEFAULT).tolist() == [*range(5, 5 + count), DEFAULT, DEFAULT]
    loaded.save(tmp_path / "again.vocab")
    assert (tmp_path / "again.vocab").read_bytes() == path.read_bytes()


def test_integers_saved_and_loaded_are_the_same(tmp_path):
    IntVocabulary.build([3, 1, 2], np.array([30, 10, 20])).save(tmp_path / "a.vocab")
    loaded = IntVocabulary.load(tmp_path / "a.vocab")
    assert loaded.lookup(np.array([1, 2, 3, 4]), DEFAULT).tolist() == [10, 20, 30, DEFAULT]


def test_equal_maps_give_equal_files_whatever_the_order(tmp_path):
    keys, ids = [b"key%d" % i for i in range(300)], np.arange(300)
    Vocabulary.build(keys, ids).save(tmp_path / "a")
    Vocabulary.build(keys[::-1], ids[::-1]).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    IntVocabulary.build(ids, ids).save(tmp_path / "a")
    IntVocabulary.build(ids[::-1], ids[::-1]).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = build_string([b"one", b"two", b"three"], tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"a\.vocab: .*rebuild the repository with `bireme build`"):
            Vocabulary.load(path)
    path.write_bytes(whole)
    Vocabulary.load(path)


def test_the_other_kind_of_vocabulary_is_refused(tmp_path):
    path = build_string([b"one"], tmp_path)
    with pytest.raises(ValueError, match="holds 'string vocabulary', not 'integer vocabulary'"):
        IntVocabulary.load(path)


@given(st.lists(st.lists(CONFUSING, unique=True, max_size=6), min_size=1, max_size=4), st.data())
def test_merged_vocabularies_answer_like_each_alone(keys, data):
    rng = np.random.default_rng(len(keys))
    alone = [Vocabulary.build(part, rng.integers(0, 1000, len(part))) for part in keys]
    merged = vocabulary.merge(alone)
    # Keys of the other parts are the queries that a mix-up would betray.
    every = [key for part in keys for key in part]
    queries = data.draw(st.lists(st.sampled_from(every) | CONFUSING if every else CONFUSING, max_size=20))
    parts = np.array(
        data.draw(st.lists(st.integers(0, len(keys) - 1), min_size=len(queries), max_size=len(queries))), int
    )
    defaults = -1 - np.arange(len(queries))
    found = merged.lookup(FlatStrings.from_list(queries), defaults, parts)
    expected = [
        int(alone[part].lookup(FlatStrings.from_list([query]), int(default))[0])
        for query, part, default in zip(queries, parts.tolist(), defaults.tolist(), strict=True)
    ]
    assert found.tolist() == expected


def test_the_same_key_in_two_parts_has_two_ids():
    merged = vocabulary.merge(
        [Vocabulary.build([b"a"], np.array([1])), Vocabulary.build([b"a"], np.array([2]))]
    )
    strings = FlatStrings.from_list([b"a", b"a", b"b"])
    assert merged.lookup(strings, DEFAULT, np.array([0, 1, 1])).tolist() == [1, 2, DEFAULT]


@pytest.mark.parametrize(
    ("array", "where", "value"),
    [
        ("directory", 0, 8),
        ("entries", (0, 1), 1 << 40),
        ("entries", (0, 1), -1),
        ("entries", (0, 2), 1 << 40),
        ("entries", (0, 2), -2),
        ("entries", (-1, 0), 5),
        ("entries", (-1, 2), 1),
    ],
)
def test_a_file_that_leads_outside_its_arrays_is_refused(array, where, value, tmp_path):
    """The C kernel would follow it and take the server along."""
    vocabulary = Vocabulary.build([b"word%d" % k for k in range(7)], np.arange(7))
    vocabulary.save(tmp_path / "v.bin")
    assert len(Vocabulary.load(tmp_path / "v.bin")) == 7
    getattr(vocabulary, array)[where] = value
    vocabulary.save(tmp_path / "v.bin")
    with pytest.raises(ValueError, match=r"v\.bin: is damaged; rebuild the repository"):
        Vocabulary.load(tmp_path / "v.bin")


def test_integer_keys_without_their_ids_are_refused(tmp_path):
    IntVocabulary(np.arange(5), np.arange(4)).save(tmp_path / "v.bin")
    with pytest.raises(ValueError, match=r"v\.bin: is damaged; rebuild the repository"):
        IntVocabulary.load(tmp_path / "v.bin")
