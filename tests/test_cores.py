"""How many cores a process may use: what control groups of both versions say, and the affinity."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bireme.cores import usable_cores


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def _sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


V1 = {"cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 16),
        ("0::/\n", {}, 16),
        ("0::/\n", {"cpu.max": "nonsense\n"}, 16),
        # The group inside a group has the quota of both.
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "200000 100000\n", "a/cpu.max": "300000 100000\n"}, 2),
        # Version 1: named by its controllers, mounted under one or all of them.
        (
            "4:cpu,cpuacct:/\n",
            {f"cpu,cpuacct/{k}": v for k, v in V1.items()} | {"cpu,cpuacct/cpu.cfs_quota_us": "600000"},
            6,
        ),
        (
            "4:cpu:/pod\n1:memory:/x\n",
            {"cpu/cpu.cfs_period_us": "50000", "cpu/cpu.cfs_quota_us": "250000"},
            5,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_period_us": "100000", "cpu/cpu.cfs_quota_us": "-1"}, 16),
        ("4:memory:/\n", {"memory/cpu.max": "100000 100000"}, 16),
    ],
)
def test_quotas(cgroup: str, files: dict[str, str], cores: int, tmp_path: Path) -> None:
    assert usable_cores(machine(tmp_path, cgroup, files)) == cores


def test_affinity_below_the_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert usable_cores(machine(tmp_path, "0::/\n", {"cpu.max": "400000 100000"})) == 2


def test_without_proc_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 16


def test_this_machine() -> None:
    assert 1 <= usable_cores() <= 16
