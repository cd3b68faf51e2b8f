"""Every text op against TensorFlow's own on the whole corpus, byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from runtime_corpus import corpus, flat, integers, tensor

from bireme_runtime.strings import FlatStrings
from bireme_runtime.text_bytes import each, join
from bireme_runtime.text_functions import MEASURES, TEXTS, Unfit
from bireme_runtime.text_numbers import as_string, parse_float, parse_integer

# TensorFlow's own errors quote the string, which Python cannot always decode.
_REFUSED = (tf.errors.InvalidArgumentError, UnicodeDecodeError)


def listed(strings: FlatStrings) -> list[bytes]:
    return [strings[index] for index in range(len(strings))]


def assert_same(found: FlatStrings, expected: tf.Tensor) -> None:
    wanted = FlatStrings.from_list(expected.numpy().tolist())
    assert len(found) == len(wanted)
    different = np.flatnonzero(~found.equal(wanted))
    assert not different.size, [(corpus()[i][:60], found[i][:60], wanted[i][:60]) for i in different[:3]]


@pytest.mark.parametrize(
    ("function", "op"),
    [("lower", tf.strings.lower), ("upper", tf.strings.upper), ("strip", tf.strings.strip)],
)
def test_case_and_strip(function: str, op: Any) -> None:
    assert_same(TEXTS[function](flat()), op(tensor()))


def test_strip_of_much_white_space() -> None:
    texts = [b" " * 5000, b"\t" * 900 + b"x y" + b"\n\v\f\r " * 200, b"\0 ", b" \0", b""]
    assert_same(TEXTS["strip"](FlatStrings.from_list(texts)), tf.strings.strip(texts))


@pytest.mark.parametrize("unit", ["BYTE", "UTF8_CHAR"])
def test_length(unit: str) -> None:
    function = {"BYTE": "length", "UTF8_CHAR": "utf8_length"}[unit]
    assert np.array_equal(MEASURES[function](flat()), tf.strings.length(tensor(), unit))


@pytest.mark.parametrize(
    ("position", "length", "unit"),
    [
        *[(0, 3, "BYTE"), (2, 1, "BYTE"), (5, 10**6, "BYTE"), (-1, 2, "BYTE"), (-4, 3, "BYTE")],
        *[(3, 0, "BYTE"), (0, 3, "UTF8_CHAR"), (1, 1, "UTF8_CHAR"), (4, 2, "UTF8_CHAR")],
        (6, 10**6, "UTF8_CHAR"),
    ],
)
def test_substr(position: int, length: int, unit: str) -> None:
    """TensorFlow refuses strings that are too short; so does this, and the very same ones."""
    strings, texts = flat(), list(corpus())
    try:
        TEXTS["substr"](strings, position, length, unit)
    except Unfit as error:
        short = error.rows
        for row in (*short[:3], *short[-3:]):
            with pytest.raises(_REFUSED):
                tf.strings.substr([texts[row]], position, length, unit)
        kept = np.setdiff1d(np.arange(len(texts)), short)
        strings, texts = strings.take(kept), [texts[row] for row in kept]
    found = TEXTS["substr"](strings, position, length, unit)
    assert_same(found, tf.strings.substr(texts, position, length, unit))


@pytest.mark.parametrize(
    ("separator", "most"), [("|", -1), ("|", 1), ("", -1), ("", 2), ("ab", -1), (" ", -1), ("\udcff", 3)]
)
def test_split(separator: str, most: int) -> None:
    cut = separator.encode("utf-8", "surrogateescape")
    expected = tf.strings.split(tensor(), cut, most).to_tensor(b"none", shape=[None, 3])
    for index in range(3):
        assert_same(TEXTS["part"](flat(), separator, most, index, "none"), expected[:, index])


@pytest.mark.parametrize("separator", [b"", b"_", b"--"])
def test_join(separator: bytes) -> None:
    reverse = flat().take(np.arange(len(flat()))[::-1])
    constant = FlatStrings.from_list([b"\xffx"]).take(np.zeros(len(flat()), np.int64))
    between = FlatStrings.from_list([separator]).take(np.zeros(len(flat()), np.int64))
    parts = [flat(), between, constant, between, reverse]
    assert_same(join(parts), tf.strings.join([tensor(), b"\xffx", tensor()[::-1]], separator.decode()))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_integers_as_strings(dtype: str) -> None:
    values = integers().astype(dtype)
    assert_same(as_string(values, dtype, "%d"), tf.strings.as_string(values))
    assert_same(as_string(values, dtype, "%07d"), tf.strings.as_string(values, width=7, fill="0"))
    assert_same(as_string(values[:5000], dtype, "%12d"), tf.strings.as_string(values[:5000], width=12))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("style", "how"),
    [
        ("%f", {}),
        ("%.3f", {"precision": 3}),
        ("%.0f", {"precision": 0}),
        ("%e", {"scientific": True}),
        ("%.9e", {"scientific": True, "precision": 9}),
        ("%g", {"shortest": True}),
        ("%+10.2f", {"width": 10, "precision": 2, "fill": "+"}),
        ("%012.2f", {"width": 12, "precision": 2, "fill": "0"}),
    ],
)
def test_floats_as_strings(dtype: str, style: str, how: dict[str, Any]) -> None:
    bits = integers()[:20_000]
    with np.errstate(all="ignore"):
        values = bits.view(np.float64).astype(dtype)
    values = np.concatenate([values[np.isfinite(values)], bits.astype(dtype) / 3, [0.0, -0.0, 0.5, 1.5, 2.5]])
    values = values.astype(dtype)
    assert_same(as_string(values, dtype, style), tf.strings.as_string(values, **how))


def test_truth_as_strings() -> None:
    assert listed(as_string(np.array([True, False]), "bool", "")) == [b"true", b"false"]
    assert tf.strings.as_string([True, False]).numpy().tolist() == [b"true", b"false"]


def tensorflow_number(text: bytes, dtype: Any) -> Any:
    try:
        return tf.strings.to_number([text], dtype).numpy()[0]
    except _REFUSED:
        return None


numeric = st.one_of(
    st.from_regex(rb"\A[ \t]{0,2}[+-]?[0-9]{0,12}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,2})?[ \n]?\Z"),
    st.integers(-(2**65), 2**65).map(lambda value: b"%d" % value),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda value: repr(value).encode()),
    st.sampled_from([b"", b" ", b"+", b"-", b".", b"1_0", b"1.", b".5", b"- 5", b"+-5", b"5d"]),
    st.sampled_from([b"0x", b"1e", b"e5", b"1e-40", b"-3e-44"]),
    st.binary(max_size=5),
)


@given(numeric)
def test_text_as_integer(text: bytes) -> None:
    for dtype in (tf.int32, tf.int64):
        assert parse_integer(text, dtype.name) == tensorflow_number(text, dtype)


@given(numeric)
def test_text_as_float(text: bytes) -> None:
    found, expected = parse_float(text), tensorflow_number(text, tf.float32)
    if found is None:
        # Infinite numbers cannot be served; hexadecimal ones and names like "inf" are not read.
        strange = expected is not None and np.isfinite(expected)
        assert not strange or b"x" in text.lower()
    else:
        assert found.tobytes() == expected.tobytes()


def test_half_way_between_two_floats() -> None:
    """Rounding to a double first would give the even neighbour."""
    for text in (b"1.00000005960464477540", b"1.00000005960464477538", b"1.000000059604644775390625"):
        assert parse_float(text) == tensorflow_number(text, tf.float32)
    assert parse_float(b"1.00000005960464477540") > 1
    assert parse_float(b"1.00000005960464477538") == 1


def test_each_distinct_string_is_worked_on_once() -> None:
    seen: list[bytes] = []
    results, inverse = each(FlatStrings.from_list([b"b", b"a", b"b", b""]), lambda t: seen.append(t) or t)
    assert sorted(seen) == [b"", b"a", b"b"]
    assert [results[i] for i in inverse] == [b"b", b"a", b"b", b""]


def test_strings_of_one_hash_are_not_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    from bireme_runtime import text_bytes

    monkeypatch.setattr(text_bytes, "farmhash64", lambda strings: np.zeros(len(strings), np.uint64))
    results, inverse = each(FlatStrings.from_list([b"b", b"a", b"b"]), bytes.upper)
    assert [results[i] for i in inverse] == [b"B", b"A", b"B"]
