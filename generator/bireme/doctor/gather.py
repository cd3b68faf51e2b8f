"""Gathers the facts: the only place that knows where each of them comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bireme.doctor import gather_gpu, gather_host, gather_server
from bireme.doctor.facts import Facts
from bireme.doctor.facts_repository import Repository
from bireme_runtime.pages import available_memory

__all__ = ["gather"]


def gather(path: Path | None = None) -> Facts:
    """Look at this host; starts no server, and changes nothing but bireme's own folder of links.

    Args:
        path: a model repository to look at as well.

    Raises:
        DoctorError: it cannot be read.
    """
    server, environment = gather_server.find_server(os.environ)
    graphics = gather_gpu.find_graphics(os.environ)
    python = gather_server.find_python({**os.environ, **environment})
    graphics = gather_gpu.with_package(graphics, python)
    return Facts(
        server=server,
        python=python.facts,
        kernel=gather_server.find_kernel(),
        shared=gather_host.find_shared(),
        available=available_memory(),
        pages=gather_host.find_pages(),
        cores=gather_host.find_cores(),
        limits=gather_host.find_limits(),
        ports=gather_host.find_ports(),
        allocator=gather_server.find_allocator(os.environ),
        analyzer=gather_server.find_analyzer(os.environ),
        graphics=graphics,
        mps=gather_gpu.find_mps(os.environ),
        repository=_repository(path, environment, len(graphics.gpus)) if path is not None else None,
    )


def _repository(path: Path, environment: Mapping[str, str], gpus: int) -> Repository:
    # gRPC comes with it, which takes a moment to import.
    from bireme.doctor.repository import read_repository

    return read_repository(path, environment, gpus)
