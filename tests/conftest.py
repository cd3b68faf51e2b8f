"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from bireme.server.ports import Ports, free_ports
from bireme.server.process import TritonServer

# On a shared machine an example may take any time; what hangs is stopped by the tests' own limits.
settings.register_profile("bireme", deadline=None)
settings.load_profile("bireme")


@pytest.fixture
def ports() -> Ports:
    """Three free ports."""
    return free_ports()


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., TritonServer]]:
    """Starts a tritonserver on a repository, once per repository and module; ends them after the module.

    `triton(repository, **options)` returns a ready `TritonServer`; options are its constructor's.
    """
    running: dict[Path, TritonServer] = {}

    def start(repository: Path, **options: object) -> TritonServer:
        if repository not in running:
            log = tmp_path_factory.mktemp("triton") / "server.log"
            # No grace for idle connections: clients of the tests may still hold theirs.
            server = TritonServer(repository, **{"log": log, "exit_timeout": 0, **options})  # type: ignore[arg-type]
            server.start()
            running[repository] = server
        return running[repository]

    yield start
    for server in running.values():
        server.stop()
