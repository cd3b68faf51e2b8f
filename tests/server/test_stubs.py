"""Processes and shared memory of one server are found by its prefix, and only those."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bireme.server.stubs import clear, dead_stubs, live_stubs

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
