"""Array files: same arrays same bytes, aligned, whole or refused."""

import numpy as np
import pytest

from bireme_runtime.arrays import read_arrays, write_arrays

ARRAYS = {
    "flags": np.array([True, False, True]),
    "empty": np.empty((0, 4), np.int64),
    "half": np.arange(6, dtype=np.float16).reshape(2, 3),
    "scalar": np.array(7, np.uint32),
    "strided": np.arange(20, dtype=np.int64)[::3],
    "big_endian": np.arange(5, dtype=">i4"),
}
META = {"seed": 3, "name": "é", "list": [1, 2]}


@pytest.fixture
def path(tmp_path):
    write_arrays(tmp_path / "x.bin", "test", META, ARRAYS)
    return tmp_path / "x.bin"


def test_round_trip(path):
    meta, arrays = read_arrays(path, "test")
    assert meta == META
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].shape == array.shape
        assert arrays[name].dtype == array.dtype.newbyteorder("=")
        assert arrays[name].ctypes.data % 64 == 0
        assert not arrays[name].flags.writeable


def test_same_arrays_same_bytes(path, tmp_path):
    write_arrays(tmp_path / "y.bin", "test", dict(reversed(META.items())), ARRAYS)
    assert (tmp_path / "y.bin").read_bytes() == path.read_bytes()


def test_no_arrays(tmp_path):
    write_arrays(tmp_path / "x.bin", "test", {}, {})
    assert read_arrays(tmp_path / "x.bin", "test") == ({}, {})


def test_a_reader_of_the_old_file_is_not_disturbed(path):
    _, old = read_arrays(path, "test")
    write_arrays(path, "test", {}, {"half": np.zeros(3)})
    np.testing.assert_array_equal(old["half"], ARRAYS["half"])
    assert read_arrays(path, "test")[0] == {}


def test_a_failed_write_leaves_everything_as_it_was(path):
    before = path.read_bytes()
    with pytest.raises(TypeError, match="array 'words' is object"):
        write_arrays(path, "test", {}, {"words": np.array(["a", None], object)})
    with pytest.raises(TypeError):
        write_arrays(path, "test", {"not": object()}, ARRAYS)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["x.bin"]


def test_a_write_that_cannot_finish_leaves_nothing_behind(tmp_path):
    (tmp_path / "x.bin").mkdir()
    with pytest.raises(OSError, match=r"x\.bin"):
        write_arrays(tmp_path / "x.bin", "test", META, ARRAYS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.bin"]


def refused(path, fault):
    return pytest.raises(ValueError, match=rf"x\.bin: {fault}.*; rebuild the repository with `bireme build`")


def test_cut_or_grown(path):
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with refused(path, "has "):
            read_arrays(path, "test")
    path.write_bytes(whole + b"\0")
    with refused(path, f"has {len(whole) + 1} bytes instead of {len(whole)}"):
        read_arrays(path, "test")


def test_any_damaged_header_bit(path):
    whole = path.read_bytes()
    header_end = whole.rindex(b"}") + 1
    for place in range(header_end):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            with refused(path, "(is not a file of this runtime|has a damaged header)"):
                read_arrays(path, "test")


def test_foreign_and_missing(path):
    with refused(path, "holds 'test', not 'other'"):
        read_arrays(path, "other")
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with refused(path, "is not a file of this runtime"):
        read_arrays(path, "test")
    path.unlink()
    with refused(path, "is missing"):
        read_arrays(path, "test")
