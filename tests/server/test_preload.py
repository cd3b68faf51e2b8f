"""jemalloc is preloaded only if it is there and fits, and never against what the user has decided."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from bireme.errors import ServerError
from bireme.server import preload as module
from bireme.server.preload import VARIABLE, find_jemalloc, preload

NAME = "libjemalloc.so.2"


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has: only what a test makes is found."""
    monkeypatch.setattr(module, "_cached", lambda: iter(()))
    monkeypatch.setattr(find_jemalloc, "__defaults__", (None, ()))
    monkeypatch.setattr(module.sys, "prefix", "/nonexistent")


def library(folder: Path, machine: int = 0, kind: int = 3) -> Path:
    """The head of a shared library for this machine, or for `machine` (ELF number)."""
    head = bytearray(Path(sys.executable).read_bytes()[:20])
    struct.pack_into("<H", head, 16, kind)
    if machine:
        struct.pack_into("<H", head, 18, machine)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(bytes(head))
    return folder / NAME


def test_found_in_the_systems_folders_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    library(second)
    assert find_jemalloc({}, (first, second)) == second / NAME
    library(first)
    assert find_jemalloc({}, (first, second)) == first / NAME


def test_found_where_the_loader_would_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = library(tmp_path / "own")
    assert find_jemalloc({"LD_LIBRARY_PATH": f"/nowhere::{tmp_path / 'own'}"}, ()) == found
    monkeypatch.setattr(module, "_cached", lambda: iter([tmp_path / "gone" / NAME, found]))
    assert find_jemalloc({}, ()) == found


def test_ldconfig_is_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    listing = (
        "2 libs found in cache `/etc/ld.so.cache'\n"
        f"\tlibjemalloc.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/{NAME}\n"
        "\tlibjemalloc.so.1 (libc6,x86-64) => /old/libjemalloc.so.1\n"
    )

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if command[0] == "ldconfig":
            raise FileNotFoundError
        return subprocess.CompletedProcess(command, 0, listing, "")

    monkeypatch.setattr(module.subprocess, "run", run)
    assert list(module._cached()) == [Path("/usr/lib/x86_64-linux-gnu") / NAME]


@pytest.mark.parametrize(
    "wrong", ["another machine", "a program", "a text", "empty", "a folder", "a dead link"]
)
def test_what_the_loader_would_refuse_is_not_found(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / NAME
    if wrong == "another machine":
        library(tmp_path, machine=8)  # MIPS
    elif wrong == "a program":
        library(tmp_path, kind=2)
    elif wrong == "a folder":
        path.mkdir()
    elif wrong == "a dead link":
        path.symlink_to(tmp_path / "gone")
    else:
        path.write_text("/* GNU ld script */ GROUP ( x )" if wrong == "a text" else "")
    assert find_jemalloc({}, (tmp_path,)) is None
    with pytest.raises(ServerError, match="no library that this machine can load"):
        preload({VARIABLE: str(path)})


@pytest.mark.parametrize("folder", ["with space", "with:colon"])
def test_a_path_that_ld_preload_would_split_is_passed_over(folder: str, tmp_path: Path) -> None:
    library(tmp_path / folder)
    assert find_jemalloc({}, (tmp_path / folder,)) is None


def test_preloaded_behind_what_the_user_has(tmp_path: Path) -> None:
    path = library(tmp_path)
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert preload(environ).environment == {"LD_PRELOAD": str(path)}
    chosen = preload({**environ, "LD_PRELOAD": "/usr/lib/libmine.so"})
    assert chosen.environment == {"LD_PRELOAD": f"/usr/lib/libmine.so:{path}"}
    assert chosen.line == f"allocator: {path}, preloaded"


@pytest.mark.parametrize(
    "before", ["/usr/lib/libtcmalloc.so.4", "libmine.so libmimalloc.so", "/x/libjemalloc.so.2"]
)
def test_the_users_own_allocator_stays_alone(before: str, tmp_path: Path) -> None:
    library(tmp_path)
    chosen = preload({"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": before})
    assert not chosen.environment
    assert "as LD_PRELOAD says" in chosen.line


def test_switched_off(tmp_path: Path) -> None:
    library(tmp_path)
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    for chosen in (preload(environ, wanted=False), preload({**environ, VARIABLE: "off"})):
        assert not chosen.environment
        assert "switched off" in chosen.line
    # The flag wins over the variable.
    assert preload({**environ, VARIABLE: "off"}, wanted=True).environment


def test_not_installed_is_said_with_the_remedy() -> None:
    chosen = preload({})
    assert not chosen.environment
    assert "apt-get install libjemalloc2" in chosen.line
    with pytest.raises(ServerError, match="is not installed") as caught:
        preload({}, wanted=True)
    assert caught.value.hint == "apt-get install libjemalloc2"


def test_a_named_library_wins(tmp_path: Path) -> None:
    library(tmp_path / "found")
    named = library(tmp_path / "named")
    chosen = preload({"LD_LIBRARY_PATH": str(tmp_path / "found"), VARIABLE: str(named)})
    assert chosen.environment == {"LD_PRELOAD": str(named)}


def test_server_and_stubs_get_it(tmp_path: Path) -> None:
    """With any harmless library in its place: which one it is, the loader does not care."""
    from server_repositories import shop

    from bireme.server.process import TritonServer
    from bireme.server.stubs import live_stubs

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path / NAME
    subprocess.run([compiler, "-shared", "-o", str(path), "-x", "c", "/dev/null"], check=True)
    chosen = preload({VARIABLE: str(path)})
    with TritonServer(
        shop(tmp_path / "repository"), exit_timeout=0, environment=chosen.environment
    ) as server:
        stubs = list(live_stubs(server._prefix))
        assert stubs
        for pid in [server.pid, *stubs]:
            assert str(path) in Path(f"/proc/{pid}/maps").read_text()
