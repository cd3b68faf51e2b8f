"""TensorRT's timings of kernels, kept between builds: the next build of a like network takes seconds.

A cache belongs to one version of TensorRT and one kind of GPU, so both are in the default file's name. It is
only an aid: a damaged or foreign one is started anew, and one that cannot be written is worth one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from bireme.engine.options import Progress
from bireme_runtime.passport import Gpu

__all__ = ["default_timing_cache", "read_timing_cache", "write_timing_cache"]


def default_timing_cache(tensorrt: str, gpu: Gpu, environment: Mapping[str, str]) -> Path | None:
    """The file in the user's cache folder; None where the user has none (a container without HOME)."""
    base = environment.get("XDG_CACHE_HOME") or ""
    home = environment.get("HOME") or ""
    if not base and not home:
        return None
    folder = Path(base) if base else Path(home) / ".cache"
    kind = re.sub(r"[^A-Za-z0-9.]+", "_", f"{tensorrt}-{gpu.name}-{gpu.compute_capability}")
    return folder / "bireme" / f"tensorrt-{kind}.timing"


def read_timing_cache(path: Path) -> bytes:
    """Its bytes; none if there is no such file."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def write_timing_cache(path: Path, content: bytes, progress: Progress) -> None:
    """Replace the file, completely or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        progress(f"the timing cache {path} cannot be written: {error.strerror}")
        unfinished.unlink(missing_ok=True)
