"""Strings that are never turned into objects, against those that are."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runtime_plans import objects
from tritonclient.utils import serialize_byte_tensor

from bireme_runtime.strings import FlatStrings
from bireme_runtime.wire import Payload, WireStrings, install, join

# What could be mistaken for a length: zero bytes, nothing, and strings whose length has more than one byte.
STRINGS = st.one_of(
    st.binary(max_size=9),
    st.text("\0\1é", max_size=12).map(str.encode),
    st.sampled_from(
        [b"", bytes(3), bytes(4), bytes(300), b"x" * 127, b"x" * 128, b"x" * 256, b"\4\0\0\0abcd"]
    ),
)


def tensor(strings: Sequence[bytes], shape: tuple[int, ...] | None = None) -> WireStrings:
    """As a Python backend hands it over."""
    array = objects(strings, (len(strings),))
    raw = serialize_byte_tensor(array).item() if strings else b""
    return Payload(np.frombuffer(raw, np.uint8)).reshape(list(shape or (len(strings),)))


def contents(strings: FlatStrings) -> list[bytes]:
    return [strings[index] for index in range(len(strings))]


@given(st.lists(st.lists(STRINGS, max_size=6), max_size=5))
@example([[b"a\0", b"\0\0\0"], [], [b""]])
@example([[b"f"], [b"", b""], [b"x" * 256]])
@example([[bytes(300)]])
def test_all_strings_of_all_tensors(tensors):
    found = join([tensor(strings) for strings in tensors])
    assert contents(found) == [string for strings in tensors for string in strings]


@given(st.lists(STRINGS, min_size=1, max_size=6))
def test_utf8_is_judged_string_by_string(strings):
    found = join([tensor(strings)]).invalid_utf8().tolist()
    assert found == FlatStrings.from_list(strings).invalid_utf8().tolist()


def test_lengths_do_not_spoil_the_text_beside_them():
    strings = [b"x" * 200, "é".encode(), b"y" * 0xC3, b"\xa9"]
    assert join([tensor(strings)]).invalid_utf8().tolist() == [3]


def test_the_payload_is_not_written_to():
    given = tensor([b"x" * 200, b"y"])
    before = given.payload.copy()
    join([given])
    np.testing.assert_array_equal(given.payload, before)


@pytest.mark.parametrize("payload", [b"", b"\5\0\0\0ab", b"\1\0\0\0ab", b"\1\0\0", b"\0\0\0\0" * 2])
def test_a_payload_that_is_not_whole_is_refused(payload):
    with pytest.raises(ValueError, match=f"a payload of {len(payload)} bytes does not hold 1 strings"):
        join([Payload(np.frombuffer(payload, np.uint8)).reshape([1])])


def test_one_string_of_many_megabytes():
    strings = [b"a", bytes(1 << 24), b"b"]
    assert contents(join([tensor(strings)])) == strings


def test_the_shape_is_the_tensors():
    assert tensor([b"a", b"b", b"c", b"d", b"e", b"f"], (1, 2, 3)).shape == (1, 2, 3)
    assert tensor([], (1, 0)).shape == (1, 0)


def test_tensors_of_both_kinds():
    mixed = [objects(["ä", b"b"], (1, 2)), tensor([b"c", b""], (2, 1))]
    assert contents(join(mixed)) == ["ä".encode(), b"b", b"c", b""]


def test_objects_that_are_no_strings_are_named():
    with pytest.raises(TypeError, match="string 2 is a int"):
        join([objects([b"a"], (1,)), objects([b"b", 3], (1, 2))])


def test_a_backend_without_the_function_is_left_alone():
    old, new = SimpleNamespace(deserialize_bytes_tensor=None), SimpleNamespace()
    install(old)
    install(new)
    assert old.deserialize_bytes_tensor is Payload
    assert not vars(new)
