"""Embedding tables: the right rows of a shared read-only file, or a reason why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_plans import PLAN, TABLES, write_file, write_plan

from bireme_runtime.preprocessor import Preprocessor
from bireme_runtime.tables import open_tables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_plan(tmp_path / "model")


def test_every_table_is_its_rows_of_the_arena(folder: Path) -> None:
    tables = open_tables(folder, TABLES)
    assert list(tables) == [table.name for table in TABLES]
    for table in TABLES:
        whole = np.fromfile(folder / table.arena, table.dtype).reshape(-1, table.width)
        assert tables[table.name].dtype == table.dtype
        assert np.array_equal(
            tables[table.name], whole[table.row_offset : table.row_offset + table.rows], equal_nan=True
        )


def test_tables_cannot_be_written(folder: Path) -> None:
    for table in open_tables(folder, TABLES).values():
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 0


def test_two_instances_share_the_file(folder: Path) -> None:
    """A change to the file shows in both: neither has read it into memory of its own."""
    first, second = (Preprocessor.open(folder)._tables["hours"] for _ in range(2))
    with (folder / "arena_w2.bin").open("r+b") as file:
        file.write(np.float32(42.0).tobytes())
    assert first[0, 0] == second[0, 0] == 42.0


def test_tables_outlive_the_name_of_their_file(folder: Path) -> None:
    """A new build replaces the folder while the old server still answers."""
    tables = open_tables(folder, TABLES)
    before = tables["hours"].copy()
    (folder / "arena_w2.bin").unlink()
    assert np.array_equal(tables["hours"], before)


@pytest.mark.parametrize("change", [-1, -4, 1, 4096, None])
def test_an_arena_of_another_size_is_refused(change: int | None, folder: Path) -> None:
    path = folder / "arena_w4.bin"
    content = path.read_bytes()
    found = 0 if change is None else len(content) + change
    path.write_bytes((content + bytes(4096))[:found])
    with pytest.raises(ValueError, match=f"{path}: has {found} bytes instead of {len(content)}; rebuild the"):
        Preprocessor.open(folder)


def test_a_missing_arena_is_named(folder: Path) -> None:
    path = folder / "arena_half.bin"
    path.unlink()
    with pytest.raises(ValueError, match=f"{path}: is missing; rebuild the repository with `bireme build`"):
        Preprocessor.open(folder)
    path.mkdir()
    with pytest.raises(ValueError, match=f"{path}: is missing"):
        Preprocessor.open(folder)


@pytest.mark.parametrize("name", ["words.bin", "keys.bin"])
def test_a_damaged_vocabulary_is_named(name: str, folder: Path) -> None:
    path = folder / name
    content = path.read_bytes()
    for damaged in (content[:-1], content[:40], b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{path}: .*rebuild the repository"):
            Preprocessor.open(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"{path}: is missing"):
        Preprocessor.open(folder)
    write_file(name, path)
    assert Preprocessor.open(folder).plan == PLAN
