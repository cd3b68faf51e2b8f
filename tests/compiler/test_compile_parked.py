"""Parked variables: same values, same results, and their memory is no longer the process's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bireme.compiler.tables import parked
from bireme.compiler.tables.parked import park


def values(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(2).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("shape", [(1000, 16), (7, 3), (33,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_values_and_shape_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shape: tuple[int, ...], dtype: Any
) -> None:
    monkeypatch.setattr(parked, "LARGE", 0)
    wanted = values(*shape, dtype=dtype)
    variable = tf.Variable(wanted)
    let_go = park([variable], tmp_path)
    for _ in range(2):
        assert np.array_equal(variable.numpy(), wanted)
        let_go()
    assert variable.shape == shape
    assert list(tmp_path.iterdir()) == []  # the file has no name


def test_a_model_computes_what_it_did_and_may_still_be_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parked, "LARGE", 0)
    table = tf.Variable(values(100, 16))

    @tf.function
    def look(ids: Any) -> Any:
        return tf.gather(table, ids) + tf.gather(table.read_value(), ids)

    before = look([3, 99]).numpy()
    park([table], tmp_path)
    assert np.array_equal(look([3, 99]).numpy(), before)
    table.scatter_update(tf.IndexedSlices(tf.zeros([1, 16]), [3]))
    assert not look([3]).numpy().any()


def test_small_ones_and_strings_are_left_alone(tmp_path: Path) -> None:
    variable, text = tf.Variable(values(10, 2)), tf.Variable(["a", "b"])
    address = np.asarray(memoryview(variable.read_value())).ctypes.data
    park([variable, text], tmp_path)
    assert np.asarray(memoryview(variable.read_value())).ctypes.data == address
    assert text.numpy().tolist() == [b"a", b"b"]


def test_without_a_place_it_stays_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parked, "LARGE", 0)
    variable = tf.Variable(values(10, 16))
    park([variable], tmp_path / "missing")
    assert np.array_equal(variable.numpy(), values(10, 16))


MEMORY = """
import sys
from pathlib import Path
from bireme.compiler.graph import tf
from bireme.compiler.tables.parked import park

def anonymous():
    return status("RssAnon")

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key + ":"))

table = tf.Variable(tf.random.stateless_uniform([2_000_000, 32], [1, 2]))
before = anonymous()
let_go = park([table], Path(sys.argv[1]))
after, unread = anonymous(), status("RssFile")
tf.reduce_sum(table)
read = status("RssFile")
let_go()
print(before, after, read - unread, status("RssFile") - unread)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's memory accounting")
def test_the_memory_is_given_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, read, kept = (int(number) for number in run.stdout.split()[-4:])
    size = 2_000_000 * 32 * 4
    assert before > size
    assert before - after > 0.8 * size
    assert read > 0.8 * size
    assert kept < 0.1 * size
