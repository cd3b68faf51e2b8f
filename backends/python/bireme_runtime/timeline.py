"""When the copies and the computation of each launch ran, as the GPU saw it: for pictures of what overlaps.

Off unless the environment variable BIREME_TIMELINE names a file. Each instance then writes one of its own
beside it (`gpu.json` → `gpu_<instance>.json`) when it ends: a list of

    {"lane": 0, "users": 4, "bucket": 256,
     "h2d": [t0, t1], "compute": [t1, t2], "d2h": [t2, t3], "unix_us": t}

in microseconds since the first event; `unix_us` is t0 by the clock of the host, to lay instances side by side
(right to about 50 µs). Only the last launches are kept.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from .cuda import Cuda
from .gpu_shapes import Shape

__all__ = ["MARKS", "VARIABLE", "Timeline"]

VARIABLE = "BIREME_TIMELINE"
#: events of a launch: before the copy to the GPU, behind it, behind the computation, behind the copy back
MARKS = 4
_KEPT = 20_000
#: CUDA gives times as 32-bit floats, which after a second still resolve a tenth of a microsecond.
_LONGEST_US = 1e6


class Timeline:
    """The launches of one instance.

    Args:
        cuda: the GPU.
        path: the file to write.
    """

    def __init__(self, cuda: Cuda, path: Path) -> None:
        self._cuda, self._path = cuda, path
        self._launches: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._stream, self._anchor = cuda.stream(), cuda.event(timed=True)
        self._offset = 0.0
        cuda.record(self._anchor, self._stream)
        cuda.synchronize(self._stream)
        self._epoch = time.time_ns() / 1000

    @classmethod
    def wanted(cls, cuda: Cuda, instance: str) -> Timeline | None:
        """One, if the environment asks for it."""
        named = os.environ.get(VARIABLE)
        if not named:
            return None
        path = Path(named)
        return cls(cuda, path.with_name(f"{path.stem}_{instance}{path.suffix or '.json'}"))

    def add(self, lane: int, shape: Shape, marks: list[int]) -> None:
        """Note a launch that is over.

        Args:
            lane: number of the lane.
            shape: what ran.
            marks: its events, `MARKS` of them.
        """
        times = [self._offset + self._cuda.elapsed(self._anchor, mark) for mark in marks]
        pairs = {"h2d": times[0:2], "compute": times[1:3], "d2h": times[2:4]}
        entry: dict[str, Any] = {"lane": lane, "users": shape.users, "bucket": shape.bucket}
        entry |= {name: [round(at, 2) for at in pair] for name, pair in pairs.items()}
        self._launches.append(entry | {"unix_us": round(self._epoch + times[0], 1)})
        if times[3] - self._offset > _LONGEST_US:
            self._advance()

    def _advance(self) -> None:
        """Measure from a later event from now on."""
        anchor = self._cuda.event(timed=True)
        self._cuda.record(anchor, self._stream)
        self._cuda.synchronize(self._stream)
        self._offset += self._cuda.elapsed(self._anchor, anchor)
        self._cuda.close_event(self._anchor)
        self._anchor = anchor

    def close(self) -> None:
        """Write the file: completely or not at all."""
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(list(self._launches)) + "\n", encoding="utf-8")
        unfinished.replace(self._path)
        self._cuda.close_event(self._anchor)
        self._cuda.close_stream(self._stream)
