"""The table store: how large arenas come to lie in huge pages, shared, with nothing left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from runtime_plans import PLAN, write_plan

from bireme_runtime import local_store, pages, shared_copy
from bireme_runtime.local_store import LocalStore, open_arena
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Preprocessor
from bireme_runtime.store import open_store
from bireme_runtime.tables import Arena, split_arenas

RUNTIME = Path(pages.__file__).parents[1]
WIDTH = 16
HOLD = """
import sys
from pathlib import Path
from bireme_runtime.local_store import open_arena
from bireme_runtime.tables import Arena
path, policy = Path(sys.argv[1]), sys.argv[2]
size = path.stat().st_size
found = open_arena(Arena(path, "float32", 16, size // 64, size), policy)
print(found.note(path.name), float(found.rows[5, 3]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """6 MB and a bit: three huge pages and the beginning of a fourth."""
    rows = (6 << 20) // (4 * WIDTH) + 77
    values = np.random.default_rng(0).normal(size=(rows, WIDTH)).astype(np.float32)
    path = tmp_path / "arena.bin"
    path.write_bytes(values.tobytes())
    return Arena(path, "float32", WIDTH, rows, values.nbytes)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arenas of the tests count as large ones."""
    monkeypatch.setattr(local_store, "SMALLEST", 1 << 20)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that never gives huge pages to a file."""
    monkeypatch.setattr(local_store, "_is_huge", lambda usage, size: False)


def whole(arena: Arena) -> np.ndarray:
    return np.fromfile(arena.path, arena.dtype).reshape(arena.rows, arena.width)


def copies(arena: Arena) -> int:
    """How many copies of it this process has open."""
    with arena.path.open("rb") as file:
        name = f"/memfd:{shared_copy.key_of(file.fileno())} (deleted)"
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing itself is one
            found += str(link.readlink()) == name
    return found


class Holder:
    """An instance in a process of its own."""

    def __init__(self, arena: Arena, policy: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(arena.path), policy],
            env={**os.environ, "PYTHONPATH": str(RUNTIME)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=20)


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    started: list[Holder] = []
    yield started
    for holder in started:
        holder.end(signal.SIGKILL)


@pytest.mark.parametrize("policy", local_store.POLICIES)
def test_every_policy_gives_the_files_rows(policy: str, arena: Arena, large: None) -> None:
    found = open_arena(arena, policy)
    assert np.array_equal(found.rows, whole(arena))
    assert found.rows.shape == (arena.rows, WIDTH)
    assert found.rows.ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        found.rows[0, 0] = 1
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        found.rows.flags.writeable = True


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_every_storage_type_survives_a_copy(dtype: str, tmp_path: Path) -> None:
    table = dataclasses.replace(PLAN.tables[0], arena="a.bin", dtype=dtype, width=5, rows=301, row_offset=0)
    from bireme_runtime.tables import open_arenas, row_bytes

    content = np.random.default_rng(1).integers(0, 255, 301 * row_bytes(table), np.uint8)
    (tmp_path / "a.bin").write_bytes(content.tobytes())
    plan = dataclasses.replace(PLAN, tables=(table,), steps=())
    copied = LocalStore.open(tmp_path, plan, "copy").arenas["a.bin"]
    mapped = open_arenas(tmp_path, [table])["a.bin"]
    assert copied.dtype == mapped.dtype
    assert copied.shape == mapped.shape
    assert copied.tobytes() == mapped.tobytes() == content.tobytes()
    assert split_arenas({"a.bin": copied}, [table])["hashed"].shape[0] == 301


def test_a_copy_is_shared_between_processes_and_dies_with_the_last(
    arena: Arena, holders: list[Holder]
) -> None:
    """The first one is killed; the second still serves a third; then nobody has it."""
    value = f"{float(whole(arena)[5, 3])}"
    holders.append(first := Holder(arena, "copy"))
    assert "shared copy, made now" in (line := first.said())
    assert line.split()[-1] == value
    holders.append(second := Holder(arena, "auto"))
    assert "small" in second.said()  # auto does not look for one where it could not gain
    holders.append(third := Holder(arena, "copy"))
    assert "shared copy)" in third.said()
    first.end(signal.SIGKILL)
    holders.append(fourth := Holder(arena, "copy"))
    assert "shared copy)" in (line := fourth.said())
    assert line.split()[-1] == value
    for holder in (third, fourth):
        holder.end(signal.SIGKILL)
    assert "shared copy, made now" in open_arena(arena, "copy").how


def test_instances_that_start_together_make_one_copy(arena: Arena, holders: list[Holder]) -> None:
    holders.extend(Holder(arena, "copy") for _ in range(4))
    said = [holder.said() for holder in holders]
    assert sum("made now" in line for line in said) == 1
    assert sum("shared copy)" in line for line in said) == 3


def test_a_copy_of_an_older_file_is_not_used(arena: Arena) -> None:
    old, before = open_arena(arena, "copy"), whole(arena)
    values = before + 1
    arena.path.write_bytes(values.tobytes())
    new = open_arena(arena, "copy")
    assert "made now" in new.how
    assert np.array_equal(new.rows, values)
    assert np.array_equal(old.rows, before)


def test_an_unfinished_or_unsealed_copy_is_not_used(arena: Arena) -> None:
    with arena.path.open("rb") as file:
        fake = os.memfd_create(shared_copy.key_of(file.fileno()), os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fake, arena.size)
            assert shared_copy.find(file.fileno(), arena.size) is None
            assert "made now" in open_arena(arena, "copy").how
        finally:
            os.close(fake)


def test_a_copy_goes_with_the_last_array_on_it(arena: Arena) -> None:
    found = open_arena(arena, "copy")
    part = found.rows[3:9]
    expected = part.copy()
    del found
    assert copies(arena) == 1
    assert np.array_equal(part, expected)
    del part
    assert copies(arena) == 0


def test_nobody_can_write_to_a_copy(arena: Arena) -> None:
    with arena.path.open("rb") as file:
        copy = shared_copy.make(file.fileno(), arena.size, lambda mapping: None)
        again = os.open(f"/proc/self/fd/{copy}", os.O_RDWR)
        try:
            with pytest.raises(PermissionError):
                os.pwrite(again, b"x", 0)
            with pytest.raises(PermissionError):
                os.ftruncate(again, 0)
        finally:
            os.close(again)
            os.close(copy)


def test_auto_copies_only_where_the_file_has_no_huge_pages(arena: Arena, large: None, refused: None) -> None:
    assert "made now" in open_arena(arena, "auto").how
    assert "copy" not in open_arena(arena, "file").how


def test_auto_does_not_copy_without_room(
    arena: Arena, large: None, refused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "available_memory", lambda: 2 * arena.size - 1)
    found = open_arena(arena, "auto")
    assert "no room for a copy" in found.how
    assert np.array_equal(found.rows, whole(arena))


def test_a_file_larger_than_memory_is_only_mapped(
    arena: Arena, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "available_memory", lambda: arena.size - 1)
    found = open_arena(arena, "auto")
    assert "larger than the memory" in found.how
    assert found.usage is not None
    assert found.usage.resident == 0


def test_without_memory_files_the_file_is_mapped(
    arena: Arena, large: None, refused: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", fail)
    found = open_arena(arena, "auto")
    assert found.how == "mapped file; huge pages failed: Operation not permitted"
    assert np.array_equal(found.rows, whole(arena))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("policy", local_store.POLICIES)
def test_nothing_allowed_at_all(policy: str, arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """No huge pages, no advice, no locks, no /proc."""

    def fail(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(pages.Mapping, "advise", lambda self, advice: False)
    monkeypatch.setattr(pages.Mapping, "usage", lambda self: None)
    monkeypatch.setattr(fcntl, "flock", fail)
    found = open_arena(arena, policy)
    assert np.array_equal(found.rows, whole(arena))
    assert "mapped file" in found.how
    assert "huge pages unknown" in found.note("a.bin")


def test_who_holds_the_lock_for_ever_is_not_waited_for(
    arena: Arena, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "_PATIENCE", 0.2)
    monkeypatch.setattr(local_store, "_PATIENCE_PER_BYTE", 0)
    with arena.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        begin = time.monotonic()
        found = open_arena(arena, "auto")
    assert 0.2 <= time.monotonic() - begin < 5
    assert "others have held the file's lock" in found.how
    assert np.array_equal(found.rows, whole(arena))


def test_huge_pages_are_counted_from_smaps() -> None:
    smaps = """\
7f0000000000-7f0000400000 r--s 00000000 fe:00 12 /a file: with words
Rss:                4096 kB
Pss:                1024 kB
AnonHugePages:         0 kB
FilePmdMapped:      2048 kB
VmFlags: rd sh mr
7f0000400000-7f0000600000 r--s 00400000 fe:00 12 /a
Rss:                2048 kB
Pss:                 512 kB
ShmemPmdMapped:     2048 kB
7f0000600000-7f0000800000 rw-p 00000000 00:00 0
Rss:                 999 kB
AnonHugePages:       999 kB
"""
    assert pages.read_usage(smaps, 0x7F0000000000, 6 << 20) == pages.Usage(6144 << 10, 1536 << 10, 4096 << 10)
    assert pages.read_usage(smaps, 0x7F0000400000, 1) == pages.Usage(2048 << 10, 512 << 10, 2048 << 10)


def test_a_mapping_is_aligned_for_huge_pages(arena: Arena) -> None:
    with arena.path.open("rb") as file:
        mapping = pages.Mapping(file.fileno(), arena.size)
    assert mapping.address % (pages.huge_page() or 4096) == 0
    mapping.touch()
    usage = mapping.usage()
    assert usage is not None
    assert arena.size <= usage.resident < arena.size + 4096
    assert mapping.bytes.tobytes() == arena.path.read_bytes()


def test_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"max": "1000000", "current": "700000", "stat": "anon 5\ninactive_file 50000\nfile 9\n"}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(pages, "_GROUPS", (tuple(str(tmp_path / name) for name in contents),))
    assert pages.available_memory() == 350_000
    (tmp_path / "max").write_text("max\n")
    assert pages.available_memory() > 10**8


def test_an_unknown_store_is_refused(tmp_path: Path) -> None:
    folder = write_plan(tmp_path / "model", dataclasses.replace(PLAN, store="redis"))
    message = r"plan.json: the table store 'redis' is unknown to this runtime, which has local; rebuild"
    with pytest.raises(ValueError, match=message):
        Preprocessor.open(folder)


def test_a_plan_without_a_store_is_local() -> None:
    raw = json.loads(PLAN.to_json())
    assert raw.pop("store") == "local"
    assert Plan.from_json(json.dumps(raw)) == PLAN


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="BIREME_HUGE_PAGES='on': must be one of auto, file, copy, off"):
        open_store(write_plan(tmp_path / "model"), PLAN, "on")


def test_the_notes_name_every_arena(tmp_path: Path) -> None:
    notes = Preprocessor.open(write_plan(tmp_path / "model"), "auto").notes
    assert sorted(note.partition(":")[0] for note in notes) == sorted({t.arena for t in PLAN.tables})
    assert all("0 MB in huge pages (mapped file; too small to gain" in note for note in notes)
