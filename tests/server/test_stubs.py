"""Processes and shared memory of one server are found by its prefix, and only those."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bireme.server.stubs import clear, clear_stale, dead_stubs, live_stubs, new_prefix

STUB = "/x/triton_python_backend_stub"


@pytest.fixture
def prefix() -> Iterator[str]:
    name = f"bireme_test_{uuid.uuid4().hex}_"
    yield name
    clear(name)


def _sleep(*arguments: str) -> subprocess.Popen[bytes]:
    """A process that waits, with these arguments on its command line."""
    process = subprocess.Popen(
        [arguments[0], "-c", "read x", *arguments[1:]], executable="/bin/sh", stdin=subprocess.PIPE
    )
    deadline = time.monotonic() + 5
    while arguments[0] not in Path(f"/proc/{process.pid}/cmdline").read_text():
        assert time.monotonic() < deadline
    return process


def test_live_stubs_are_named_by_their_instance(prefix: str) -> None:
    other = f"{prefix[:-1]}x_"
    mine = _sleep(
        STUB, "/r/ctr_dnn/1/model.py", f"{prefix}ab12", "1048576", "1048576", "77", "/b", "ctr_dnn_0_1"
    )
    foreign = _sleep(STUB, "/r/ctr_dnn/1/model.py", f"{other}ab12", "ctr_dnn_0_0")
    try:
        assert live_stubs(prefix) == {mine.pid: "ctr_dnn_0_1"}
    finally:
        clear(prefix)
        assert mine.wait(5) != 0
        assert foreign.poll() is None
        foreign.kill()
        foreign.wait()


def test_clear_ends_the_server_too_and_removes_its_memory(prefix: str) -> None:
    server = _sleep("/b/tritonserver", f"--backend-config=python,shm-region-prefix-name={prefix}")
    region, neighbour = Path(f"/dev/shm/{prefix}1"), Path(f"/dev/shm/x{prefix}1")
    region.touch()
    neighbour.touch()
    try:
        clear(prefix)
        assert server.wait(5) != 0
        assert not region.exists()
        assert neighbour.exists()
    finally:
        neighbour.unlink()


def test_a_dead_stub_is_one_that_its_server_has_not_buried(tmp_path: Path) -> None:
    stub = tmp_path / "triton_python_backend_stub"
    stub.symlink_to("/bin/true")
    child = os.posix_spawn(stub, [str(stub)], {})
    deadline = time.monotonic() + 5
    while dead_stubs(os.getpid()) != {child}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.waitpid(child, 0)
    assert dead_stubs(os.getpid()) == set()


def test_stale_memory_goes_and_that_of_living_servers_stays() -> None:
    dead, alive, orphan = new_prefix(), new_prefix(), new_prefix()
    _, pid, namespace, *_ = dead.split("_")
    assert int(pid) == os.getpid()
    elsewhere = dead.replace(f"_{namespace}_", "_1_")  # of a container whose processes we cannot see
    unknown = dead.replace(f"_{namespace}_", "_0_")
    regions = {p: Path(f"/dev/shm/{p}1") for p in (dead, alive, orphan, elsewhere, unknown, "bireme_mine_")}
    server = _sleep("/b/tritonserver", f"--backend-config=python,shm-region-prefix-name={alive}")
    stub = _sleep(STUB, "/r/ctr_dnn/1/model.py", f"{orphan}ab12", "ctr_dnn_0_0")
    try:
        for region in regions.values():
            region.touch()
        clear_stale()
        left = {prefix for prefix, region in regions.items() if region.exists()}
        assert left == regions.keys() - {dead}
    finally:
        for process in (server, stub):
            process.kill()
            process.wait()
        for region in regions.values():
            region.unlink(missing_ok=True)
