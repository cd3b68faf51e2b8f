"""Facts gathered from files, commands and sockets of this machine, or from stand-ins in a folder."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from pathlib import Path

import pytest

from bireme.doctor import gather_gpu, gather_host, gather_server
from bireme.doctor.facts import Python
from bireme.server.stubs import new_prefix

LISTENING = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0
   1: 0100007F:1F41 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0
"""
LDD = """\tlinux-vdso.so.1 (0x00007ffc)
\tlibb64.so.0d => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
/p: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /p)
/p: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /p)
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_only_listening_sockets_count() -> None:
    assert gather_host.listeners(LISTENING) == {8000: "4711"}
    assert gather_host.listeners("") == {}


def test_a_held_port_names_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (found,) = gather_host.find_ports([port])
    assert (found.number, found.pid) == (port, os.getpid())
    assert found.command == Path("/proc/self/comm").read_text().strip()
    assert gather_host.find_ports([port]) == ()


@pytest.mark.parametrize(
    ("text", "expected"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("\n", set())]
)
def test_lists_of_cpus(text: str, expected: set[int]) -> None:
    assert gather_host.numbers(text) == expected


def test_nodes_without_cpus_are_left_out(tmp_path: Path) -> None:
    for node, cpus in {"node0": "0-1\n", "node1": "2\n", "node2": "\n"}.items():
        (tmp_path / "sys/devices/system/node" / node).mkdir(parents=True)
        (tmp_path / "sys/devices/system/node" / node / "cpulist").write_text(cpus)
    found = gather_host.find_cores(tmp_path)
    assert found.nodes == {0: {0, 1}, 1: {2}}
    assert found.affinity == os.sched_getaffinity(0)
    assert found.usable == len(found.affinity)


def test_the_choice_in_brackets() -> None:
    assert gather_host.chosen("always [madvise] never\n") == "madvise"
    assert gather_host.chosen("") == ""


def test_leftovers_of_both_kinds_are_found() -> None:
    ours = Path("/dev/shm") / f"{new_prefix()}1"
    foreign = Path("/dev/shm") / f"triton_python_backend_shm_region_{uuid.uuid4()}"
    try:
        ours.write_bytes(b"12")
        foreign.write_bytes(b"123")
        found = gather_host.find_shared()
    finally:
        ours.unlink(missing_ok=True)
        foreign.unlink(missing_ok=True)
    assert (ours.name, 2) in [(region.name, region.size) for region in found.stale]
    assert (foreign.name, 3) in [(region.name, region.size) for region in found.foreign]
    assert found.size >= found.free > 0
    names = {region.name for region in (*gather_host.find_shared().stale, *gather_host.find_shared().foreign)}
    assert not names & {ours.name, foreign.name}


def test_a_server_that_is_not_there_is_a_refusal(tmp_path: Path) -> None:
    server, environment = gather_server.find_server({"BIREME_TRITONSERVER": str(tmp_path / "none")})
    assert server.refusal is not None
    assert server.refusal.message == "is not an executable file"
    assert environment == {}


def test_a_system_server_tells_version_and_stub_by_its_files(tmp_path: Path) -> None:
    """The layout is that of NVIDIA's image; the files are made up."""
    command = script(tmp_path / "bin/tritonserver", "exit 1")
    (tmp_path / "TRITON_VERSION").write_text("2.60.0\n")
    stub = tmp_path / "backends/python/triton_python_backend_stub"
    stub.parent.mkdir(parents=True)
    stub.write_bytes(b"\x7fELF\0libpython3.12.so.1.0\0")
    server, _ = gather_server.find_server({"BIREME_TRITONSERVER": str(command)})
    assert (server.kind, server.version, server.stub) == ("named", "2.60.0", "3.12")


def test_the_servers_python_is_asked(tmp_path: Path) -> None:
    here = gather_server.find_python({"PATH": str(Path(sys.executable).parent)}).facts
    assert here.minor == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert here.numpy.startswith("1.")
    script(tmp_path / "a/python3", 'echo \'["3.10", "2.1.0", "8.6.0", ["tensorrt"]]\'')
    other = gather_server.find_python({"PATH": str(tmp_path / "a")})
    assert other.facts == Python(str(tmp_path / "a/python3"), "3.10", "2.1.0", frozenset({"tensorrt"}))
    assert other.tensorrt == "8.6.0"
    script(tmp_path / "b/python3", "echo no; exit 3")
    assert gather_server.find_python({"PATH": str(tmp_path / "b")}).facts.minor == ""
    assert gather_server.find_python({"PATH": str(tmp_path)}).facts.command == ""


def test_what_ldd_misses() -> None:
    assert gather_server.missing_in(LDD) == ("libb64.so.0d", "GLIBC_2.38", "GLIBCXX_3.4.32")
    assert gather_server.missing_in("\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n") == ()


def test_perf_analyzer_by_its_variable(tmp_path: Path) -> None:
    here = gather_server.find_analyzer({"BIREME_PERF_ANALYZER": sys.executable})
    assert (here.command, here.missing) == (sys.executable, ())
    gone = str(tmp_path / "gone")
    assert gather_server.find_analyzer({"BIREME_PERF_ANALYZER": gone}).missing == (gone,)


def test_an_allocator_that_cannot_be_loaded_is_a_refusal(tmp_path: Path) -> None:
    found = gather_server.find_allocator({"BIREME_JEMALLOC": str(tmp_path / "none.so")})
    assert found.refusal is not None
    assert not gather_server.find_allocator({"BIREME_JEMALLOC": "off"}).missing


def test_mps_by_its_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nvidia-cuda-mps-control` is a stand-in: NVIDIA's is not here."""
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "p")}
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    none = gather_gpu.find_mps(environ)
    assert (none.command, none.given, none.pipe, none.answers) == (False, True, False, None)
    script(tmp_path / "bin/nvidia-cuda-mps-control", 'read x; [ "$x" = get_server_list ]')
    (tmp_path / "p").mkdir()
    (tmp_path / "p/control").touch()
    there = gather_gpu.find_mps(environ)
    assert (there.command, there.pipe, there.owner, there.answers) == (True, True, os.getuid(), True)
    script(tmp_path / "bin/nvidia-cuda-mps-control", "exit 1")
    assert gather_gpu.find_mps(environ).answers is False


def test_devices_without_a_driver(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidiactl", "null"):
        (tmp_path / name).touch()
    found = gather_gpu.find_graphics({"CUDA_VISIBLE_DEVICES": "3"}, tmp_path)
    assert (found.devices, found.hidden) == ((str(tmp_path / "nvidia0"),), "3")
