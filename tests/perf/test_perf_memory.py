"""What is said of memory: sums of /proc, slopes, and the measurements themselves, small and short."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import memory
import soak
from drift import drift_of
from maps import Memory, parse
from micro.page_kinds import main as page_kinds

SMAPS = """\
55d000000000-55d000100000 r-xp 00000000 fe:00 9                  /usr/bin/python3.11
Rss:                1000 kB
Pss:                 500 kB
AnonHugePages:         0 kB
7f0000000000-7f0000400000 r--s 00000000 fe:00 12                 /repo/m_preprocess/1/arena_float32_w16.bin
Rss:                4096 kB
Pss:                1024 kB
FilePmdMapped:      2048 kB
7f0000600000-7f0000800000 r--s 00000000 00:01 77                 /memfd:bireme-fe00-c-1-2 (deleted)
Rss:                2048 kB
Pss:                 512 kB
ShmemPmdMapped:     2048 kB
7f0000900000-7f0000a00000 rw-p 00000000 00:00 0                  [heap]
Rss:                 100 kB
Pss:                 100 kB
AnonHugePages:        40 kB
7f0000b00000-7f0000c00000 rw-p 00000000 00:00 0
Rss:                  50 kB
Pss:                  50 kB
"""


def test_tables_are_told_from_the_rest():
    assert parse(SMAPS, {"arena_float32_w16.bin"}) == Memory(
        resident=7294 << 10,
        share=2186 << 10,
        anonymous=150 << 10,
        table_share=1536 << 10,
        table_resident=6144 << 10,
        table_huge=4096 << 10,
    )


def test_a_drift_is_found_with_its_bounds_and_a_warm_up_is_not_one():
    rng = random.Random(0)
    times = [0.5 * i for i in range(600)]
    growing = drift_of(times, [100 + 0.02 * t + rng.gauss(0, 1) for t in times])
    assert growing.lowest < 0.02 < growing.highest
    assert growing.lowest > 0
    assert growing.highest - growing.lowest < 0.01
    warm = drift_of(times, [min(t, 50.0) + rng.gauss(0, 0.1) for t in times])
    assert warm.lowest < 0 < warm.highest
    assert warm.highest < 0.001


def test_a_drift_needs_samples():
    with pytest.raises(ValueError, match="23 samples are too few to tell a slope"):
        drift_of(list(range(29)), [1.0] * 29)


def test_bounds_hold_for_samples_that_are_alike():
    """A random walk of no drift: neighbours are alike; far fewer than all of them look like growth."""
    rng = random.Random(1)
    alarms = 0
    for _ in range(200):
        value, values = 0.0, []
        for _ in range(400):
            value = 0.9 * value + rng.gauss(0, 1)
            values.append(value)
        alarms += drift_of([float(i) for i in range(400)], values).lowest > 0
    assert alarms < 14


def test_kinds_of_pages_are_measured_in_turn(tmp_path: Path):
    out = tmp_path / "results" / "kinds.json"
    out.parent.mkdir()
    assert page_kinds(["--sizes", "4", "8", "--repeats", "2", "--calls", "2", "--out", str(out)]) == 0
    cases = json.loads(out.read_text())["cases"]
    assert [case["bytes"] for case in cases] == [4 << 20, 8 << 20]
    for case in cases:
        assert all(len(times) == 2 and min(times) > 0 for times in case["microseconds"].values())
        assert case["huge_share"]["copy, scattered 4 KB pages"] == 0
    assert sorted(path.name for path in out.parent.iterdir()) == ["kinds.json", "kinds.png"]


@pytest.mark.triton
def test_memory_of_four_instances_is_measured(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "MODEL", "tiny")
    monkeypatch.setattr(memory, "POLICIES", ("auto", "copy"))
    monkeypatch.setattr(memory, "_CANDIDATES", 5)
    folder = shutil.copytree(repository, tmp_path / "repository")
    out = tmp_path / "memory.json"
    # Tables of some kB are nothing beside the processes: the target is missed, and said to be.
    assert memory.main(["--repository", str(folder), "--seconds", "0.3", "--out", str(out)]) == 1
    policies = json.loads(out.read_text())["policies"]
    assert [one["policy"] for one in policies] == ["auto", "copy"]
    for one in policies:
        assert len(one["killed"]["regions_of_triton_left"]) > 0
        assert len(one["instances"]) == 4
        assert len(one["notes"]) == 4
        assert all(instance["table_share"] < instance["table_resident"] for instance in one["instances"])
        assert one["killed"]["copies_left"] == []
        assert one["killed"]["regions_after_stop"] == []
        assert one["summary"]["share_over_tables"] > memory.LIMIT
    assert policies[0]["killed"]["copies_before"] == []
    assert len(policies[1]["killed"]["copies_before"]) == 1
    assert sum("made now" in note for note in policies[1]["notes"]) == 1
    assert out.with_suffix(".png").exists()


@pytest.mark.triton
def test_a_soak_watches_every_process(
    tiny, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr(soak, "_EVERY", 0.02)
    out = tmp_path / "soak.json"
    options = ["--spec", str(tiny(1)), "--repository", str(repository)]
    soak.main([*options, "--minutes", "0.1", "--out", str(out)])
    found = json.loads(out.read_text())
    assert set(found["rss_bytes"]) == {"server", "tiny_preprocess", "tiny_dnn", "all together"}
    assert all(min(sizes) > 5e6 for sizes in found["rss_bytes"].values())
    assert found["left"] == []
    assert found["window"]["requests"] > 10
    assert "growth, MB a minute" in capsys.readouterr().out
