"""FlatStrings against what Python does with each string on its own."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme_runtime.strings import PADDING, FlatStrings

SEPARATOR = b"\x1e"
# Pieces that meet every branch: empty, the separator, NULs, each UTF-8 length, each way to break it.
PIECES = [
    b"",
    SEPARATOR,
    b"\0",
    b"a",
    b"item_42",
    "é".encode(),
    "漢".encode(),
    "😀".encode(),
    b"\xff",
    b"\xc3",
]
PIECES += [
    b"\xe6\xbc",
    b"\xf0\x9f\x98",
    b"\x80",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
    b"x" * 70,
]
STRING = st.one_of(st.binary(max_size=80), st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join))
STRINGS = st.lists(STRING, max_size=30)


def objects(strings):
    array = np.empty(len(strings), object)
    array[:] = strings
    return array


def is_utf8(string):
    try:
        string.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def contents(flat):
    return [flat[i] for i in range(len(flat))]


@given(STRINGS)
def test_every_string_comes_back(strings):
    flat = FlatStrings.from_objects(objects(strings))
    assert contents(flat) == strings
    assert flat.starts.dtype == flat.lengths.dtype == np.int64
    assert flat.data.size >= sum(map(len, strings)) + PADDING


def test_any_shape_is_read_in_c_order():
    grid = objects([b"a", b"bb", b"", b"dddd"]).reshape(2, 2)
    assert contents(FlatStrings.from_objects(grid.T)) == [b"a", b"", b"bb", b"dddd"]


def test_text_is_encoded():
    assert contents(FlatStrings.from_list([b"\xff", "né", np.str_("漢")])) == [
        b"\xff",
        "né".encode(),
        "漢".encode(),
    ]


def test_a_lone_surrogate_is_judged_not_raised():
    assert FlatStrings.from_list(["fine", "\ud800"]).invalid_utf8().tolist() == [1]


@pytest.mark.parametrize("wrong", [None, 3, 2.5, [b"a"]])
def test_other_types_are_named_with_their_place(wrong):
    with pytest.raises(TypeError, match=rf"string 2 is a {type(wrong).__name__}"):
        FlatStrings.from_objects(objects([b"a", "b", wrong]))


@given(st.lists(STRINGS, max_size=4))
def test_concat(parts):
    flat = FlatStrings.concat([FlatStrings.from_list(part) for part in parts])
    assert contents(flat) == [string for part in parts for string in part]
    assert next(iter(flat.invalid_utf8().tolist()), -1) == next(
        (i for i, s in enumerate(contents(flat)) if not is_utf8(s)), -1
    )


@given(STRINGS.filter(bool), st.data())
def test_take_shares_the_buffer(strings, data):
    indices = np.array(data.draw(st.lists(st.integers(0, len(strings) - 1))), np.int64)
    flat = FlatStrings.from_list(strings)
    taken = flat.take(indices)
    assert taken.data is flat.data
    assert contents(taken) == [strings[i] for i in indices]


@given(STRINGS.filter(bool), st.integers(1, 8))
def test_words_are_little_endian_at_any_offset(strings, width):
    flat = FlatStrings.from_list(strings)
    for offset in (0, flat.lengths // 2, flat.lengths):
        where = flat.starts + offset
        expected = [
            [int.from_bytes(flat.data[at + 8 * j : at + 8 * j + 8].tobytes(), "little") for j in range(width)]
            for at in where.tolist()
        ]
        assert flat.block(offset, width).tolist() == expected
        assert flat.words(offset).tolist() == [row[0] for row in expected]


def test_reading_past_the_buffer_is_refused():
    with pytest.raises(IndexError):
        FlatStrings.from_list([b"a"]).words(PADDING)


@given(STRINGS)
def test_blocks_are_zero_past_the_end(strings):
    rebuilt = [b""] * len(strings)
    for rows, first, words in FlatStrings.from_list(strings).blocks():
        for row, line in zip(np.arange(len(strings))[rows].tolist(), words, strict=True):
            assert len(rebuilt[row].ljust(8 * first, b"\0")) == 8 * first
            rebuilt[row] += line.tobytes()
    for string, copy in zip(strings, rebuilt, strict=True):
        assert copy.startswith(string)
        assert not any(copy[len(string) :])


@given(STRINGS, st.data())
def test_equal(strings, data):
    others = [data.draw(st.sampled_from([s, s + b"\0", s[:-1], s[:-1] + b"?", s[::-1]])) for s in strings]
    verdict = FlatStrings.from_list(strings).equal(FlatStrings.from_list(others))
    assert verdict.tolist() == [a == b for a, b in zip(strings, others, strict=True)]


@settings(max_examples=400)
@given(STRINGS, st.data())
def test_utf8_verdict_is_per_string(strings, data):
    flat = FlatStrings.from_list(strings)
    invalid = [i for i, string in enumerate(strings) if not is_utf8(string)]
    assert flat.invalid_utf8().tolist() == invalid
    assert next(iter(flat.invalid_utf8().tolist()), -1) == (invalid[0] if invalid else -1)
    if strings:  # A selection is judged by its own strings only.
        order = np.array(data.draw(st.lists(st.integers(0, len(strings) - 1))), np.int64)
        expected = [i for i, at in enumerate(order.tolist()) if not is_utf8(strings[at])]
        assert flat.take(order).invalid_utf8().tolist() == expected


def test_one_huge_string_among_many_short_ones_costs_no_memory():
    strings = [b"short %d" % i for i in range(2000)]
    strings[1234] = "é".encode() * 35_000
    flat = FlatStrings.from_list(strings)
    tracemalloc.start()
    blocks = sum(words.size for _, _, words in flat.blocks())
    verdict = next(iter(flat.invalid_utf8().tolist()), -1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blocks < 2000 * 8 + 70_000 // 8 + 8
    assert verdict == -1
    assert peak < 10 * flat.data.size
