"""Tables that two instances share: one copy in memory, the same scores, nothing left when all are killed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served_helpers import Bare, Tensors

from bireme.server.process import TritonServer
from bireme.server.stubs import live_stubs
from bireme_runtime.local_store import VARIABLE

pytestmark = pytest.mark.triton


@pytest.fixture
def copying(two_instances: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TritonServer]:
    """Two instances whose tables, small as they are, lie in a copy."""
    monkeypatch.setenv(VARIABLE, "copy")
    with TritonServer(two_instances, log=tmp_path / "server.log", exit_timeout=0) as server:
        yield server


def instances(server: TritonServer) -> dict[str, int]:
    found = live_stubs(server._prefix).items()
    return {name: pid for pid, name in found if name.startswith("obd_preprocess")}


def copies(pids: list[int]) -> dict[int, set[int]]:
    """Process id → inodes of the copies that it has open."""
    found: dict[int, set[int]] = {pid: set() for pid in pids}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if str(link.readlink()).startswith("/memfd:bireme-"):
                found[pid].add(link.stat().st_ino)
    return found


def test_two_instances_share_one_copy(copying: TritonServer, server: TritonServer, tensors: Tensors) -> None:
    first, second = copies(list(instances(copying).values())).values()
    assert first
    assert first == second
    scores = Bare(copying, "grpc")(tensors)
    np.testing.assert_array_equal(scores, Bare(server, "grpc")(tensors))


def test_the_log_says_where_each_arena_lies(copying: TritonServer) -> None:
    assert copying.log is not None
    lines = re.findall(
        r'"(obd_preprocess_0_\d): (arena_\w+\.bin): [^"]*\(([^"]*)\)"', copying.log.read_text()
    )
    names = {name for _, name, _ in lines}
    assert names
    assert {(instance, name) for instance, name, _ in lines} == {
        (instance, name) for instance in ("obd_preprocess_0_0", "obd_preprocess_0_1") for name in names
    }
    for name in names:
        said = sorted(how for _, arena, how in lines if arena == name)
        assert said == ["the instances' shared copy", "the instances' shared copy, made now"]


def test_nothing_is_left_when_all_are_killed(copying: TritonServer) -> None:
    stubs = live_stubs(copying._prefix)
    inodes = set.union(*copies(list(instances(copying).values())).values())
    assert copying.pid is not None
    for pid in (copying.pid, *stubs):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while live_stubs(copying._prefix):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not inodes & _held()
    copying.stop()
    assert not list(Path("/dev/shm").glob(f"{copying._prefix}*"))


def _held() -> set[int]:
    """Inodes of all copies that any process has open."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()).startswith("/memfd:bireme-"):
                found.add(link.stat().st_ino)
        except OSError:
            continue
    return found
