"""Embedding tables on their way from variables to files: every row, in little memory, written once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bireme.compiler.tables import tables_export
from bireme.compiler.tables.staged import stage
from bireme.compiler.tables.tables_export import row_chunks, write_arena
from bireme.errors import CompileError
from bireme_runtime.plan import Table
from bireme_runtime.tables import open_tables

MIB = 1 << 20


def random(*shape: int) -> Any:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 9])
def test_chunks_are_all_rows_in_order_and_bounded(rows: int) -> None:
    values = random(rows, 5)
    chunks = list(row_chunks(tf.Variable(values), size=4 * 5 * 4))
    assert np.array_equal(np.concatenate(chunks), values)
    assert all(len(chunk) <= 4 for chunk in chunks)
    assert len(chunks) == -(-rows // 4)


def test_reading_pieces_leaves_the_variable_as_it_was() -> None:
    """TensorFlow would copy a whole table at every read, once rows were gathered from the variable itself."""
    variable = tf.Variable(random(1000, 4))

    def address() -> int:
        return np.asarray(memoryview(variable.read_value())).ctypes.data

    before = address()
    assert len(list(row_chunks(variable, size=1000))) > 1
    assert address() == before


def test_a_row_larger_than_a_chunk_is_a_chunk() -> None:
    values = random(3, 100)
    assert np.array_equal(np.concatenate(list(row_chunks(tf.Variable(values), size=8))), values)


def test_tables_of_one_arena_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_export, "CHUNK", 100)
    values = {"a": random(11, 3), "b": random(1, 3), "c": random(40, 3)}
    firsts = {"a": 0, "b": 11, "c": 12}
    tables = [Table(name, "arena", "float32", 3, firsts[name], len(rows)) for name, rows in values.items()]
    write_arena(tables, {name: tf.Variable(rows) for name, rows in values.items()}, tmp_path / "arena")
    found = open_tables(tmp_path, tables)
    for name, rows in values.items():
        assert np.array_equal(found[name], rows), name


def test_a_staged_file_is_handed_over_without_writing_it_again(tmp_path: Path) -> None:
    written: list[Path] = []

    def write(path: Path) -> None:
        written.append(path)
        path.write_bytes(b"rows")

    source = tmp_path / "source"
    source.mkdir()
    staged = stage({"arena": write}, source)["arena"]
    staged(tmp_path / "target")
    assert written == [source / "arena"]
    assert (tmp_path / "target").stat().st_ino == (source / "arena").stat().st_ino

    (source / "arena").unlink()
    staged(tmp_path / "late")
    assert written[1:] == [tmp_path / "late"]
    assert (tmp_path / "late").read_bytes() == (tmp_path / "target").read_bytes() == b"rows"


def test_a_file_system_without_links_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_link)

    def write(path: Path) -> None:
        path.write_bytes(b"rows")

    staged = stage({"arena": write}, tmp_path)["arena"]
    (tmp_path / "arena").write_bytes(b"what lies there")
    staged(tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"what lies there"


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    with pytest.raises(CompileError) as caught:
        stage({"arena_float32_w4.bin": full}, tmp_path)
    assert "arena_float32_w4.bin" in caught.value.where
    assert "No space left" in caught.value.message
    assert "free space" in caught.value.hint


EXPORT = """
import sys
from pathlib import Path
import numpy as np
from bireme.compiler.graph import tf
from bireme.compiler.tables.tables_export import write_arena
from bireme_runtime.plan import Table

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key + ":"))

rows, width, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
variables = {}
for name in ("first", "second"):
    variables[name] = tf.Variable(tf.random.stateless_uniform([rows, width], [rows, 7]))
    for at in (0, rows // 2, rows - 1000):
        np.save(folder / f"{name}_{at}.npy", variables[name].read_value()[at : at + 1000].numpy())
    rows //= 8
small = Table("warm", "warm", "float32", width, 0, 8)
write_arena([small], {"warm": tf.Variable(tf.zeros([8, width]))}, folder / "warm")
tables, first = [], 0
for name, variable in variables.items():
    tables.append(Table(name, "arena", "float32", width, first, variable.shape[0]))
    first += variable.shape[0]
Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew from here
before = status("RssAnon")
peak_before = status("VmHWM")
write_arena(tables, variables, folder / "arena")
print(before, status("VmHWM") - peak_before)
"""


def export_in_a_process(rows: int, width: int, folder: Path) -> tuple[int, int]:
    """(bytes in anonymous memory before the export, growth of the high-water mark VmHWM during it)."""
    run = subprocess.run(
        [sys.executable, "-c", EXPORT, str(rows), str(width), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    before, grown = run.stdout.split()[-2:]
    return int(before), int(grown)


def same_rows(folder: Path, rows: int, width: int) -> None:
    """The arena holds what the variables held, looked at in places, the edges among them."""
    arena = np.memmap(folder / "arena", np.float32, "r", shape=(rows + rows // 8, width))
    seen = sorted(folder.glob("*_*.npy"))
    assert len(seen) == 6
    for path in seen:
        name, at = path.stem.split("_")
        first = int(at) + (rows if name == "second" else 0)
        assert np.array_equal(arena[first : first + 1000], np.load(path)), path.name


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's memory accounting")
def test_an_export_needs_little_memory(tmp_path: Path) -> None:
    rows, width = 1_500_000, 32
    size = rows * width * 4
    before, grown = export_in_a_process(rows, width, tmp_path)
    assert before > size  # else the tables were not in memory, and the measurement says nothing
    assert grown < 0.75 * size  # two chunks and what TensorFlow's allocator rounds up
    same_rows(tmp_path, rows, width)


@pytest.mark.slow
def test_a_table_above_two_gigabytes_needs_no_more(tmp_path: Path) -> None:
    rows, width = 34_000_000, 16
    size = rows * width * 4
    assert size > 2 << 30
    disk = os.statvfs(tmp_path)
    if disk.f_bavail * disk.f_frsize < 3 * size:
        pytest.skip("not enough free disk")
    try:
        before, grown = export_in_a_process(rows, width, tmp_path)
        assert before > size
        assert grown < 0.1 * size
        same_rows(tmp_path, rows, width)
    finally:
        (tmp_path / "arena").unlink(missing_ok=True)
