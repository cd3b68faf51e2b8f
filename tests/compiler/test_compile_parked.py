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
from bireme.compiler.tables.mapped import let_go, mappings
from bireme.compiler.tables.parked import park, parking


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
    park([variable], tmp_path)
    assert len(mappings(tmp_path)) == 1
    for _ in range(2):
        assert np.array_equal(variable.numpy(), wanted)
        let_go(tmp_path)
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


class Tables(tf.Module):
    """Variables of several kinds, of which a signature reads all."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [tf.Variable(values(rows, 16)) for rows in (100, 7, 300, 50)]
        self.half = tf.Variable(values(90, 16, dtype=np.float16))
        self.names = tf.Variable(["a", "b"])
        self.seen = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        self.seen.insert(["a"], [3])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def look(self, ids: Any) -> Any:
        found = sum(tf.gather(table, ids) for table in self.tables) + tf.cast(
            tf.gather(self.half, ids), tf.float32
        )
        return {"rows": found, "seen": self.seen.lookup(tf.gather(self.names, ids % 2))}


@pytest.mark.parametrize(("group", "most"), [(1 << 20, 1), (8000, 4), (1, 5)])
def test_a_model_is_restored_into_files_group_after_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: int, most: int
) -> None:
    monkeypatch.setattr(parked, "LARGE", 64)
    monkeypatch.setattr(parked, "GROUP", group)
    made = Tables()
    tf.saved_model.save(made, str(tmp_path / "model"), signatures=made.look)
    place = tmp_path / "place"
    place.mkdir()
    with parking(place):
        model = tf.saved_model.load(str(tmp_path / "model"))
    files = len(mappings(place))
    assert most - 2 < files <= most
    park([*model.tables, model.half, model.names], place)
    assert len(mappings(place)) == files  # they are there already
    look = model.signatures["serving_default"]
    ids = np.array([0, 6, 3])
    for _ in range(2):
        found = look(tf.constant(ids))
        assert np.array_equal(found["rows"], made.look(ids)["rows"])
        assert found["seen"].numpy().tolist() == [3, 3, -1]
        for saved, loaded in zip([*made.tables, made.half], [*model.tables, model.half], strict=True):
            assert np.array_equal(saved.numpy(), loaded.numpy())
        let_go(place)


def test_a_full_disk_restores_into_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parked, "LARGE", 64)
    made = Tables()
    tf.saved_model.save(made, str(tmp_path / "model"), signatures=made.look)
    with parking(tmp_path / "missing"):
        model = tf.saved_model.load(str(tmp_path / "model"))
    assert np.array_equal(model.tables[2].numpy(), made.tables[2].numpy())


def test_a_thousand_tables_keep_few_files_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parked, "LARGE", 0)
    monkeypatch.setattr(parked, "GROUP", 1)
    variables = [tf.Variable(values(4, 4)) for _ in range(1000)]
    park(variables, tmp_path)
    assert 90 <= len(mappings(tmp_path)) <= 120
    assert all(np.array_equal(variable.numpy(), values(4, 4)) for variable in variables)


MEMORY = """
import sys
from pathlib import Path
from bireme.compiler.graph import tf
from bireme.compiler.tables.mapped import let_go
from bireme.compiler.tables.parked import park

def anonymous():
    return status("RssAnon")

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key + ":"))

table = tf.Variable(tf.random.stateless_uniform([2_000_000, 32], [1, 2]))
before = anonymous()
park([table], Path(sys.argv[1]))
after, unread = anonymous(), status("RssFile")
tf.reduce_sum(table)
read = status("RssFile")
let_go(Path(sys.argv[1]))
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
