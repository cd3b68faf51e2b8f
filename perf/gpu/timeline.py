"""When copies and computation ran on the GPU: the lanes of one instance, in a moment of full load."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpu.bench import Bench
from gpu.steps import NotHere
from gpu.throughput import Configuration, dense_server

__all__ = ["overlap", "record", "shorten"]

_KEPT = 24  # launches in the picture
_PARTS = ("h2d", "compute", "d2h")


def record(bench: Bench, timeout: float) -> dict[str, Any]:
    """Load one instance while it notes its launches; some of them, and how much of the copies overlaps.

    Requests of several sizes take turns: a batch then becomes several executions, one for each bucket.
    """
    if bench.rehearsal:
        raise NotHere("there is no GPU to time")
    folder = bench.work / "timeline"
    # In the background a batch can be handed over while the one before it still runs.
    chosen = Configuration(1, {"BIREME_TIMELINE": str(folder / "gpu.json"), "BIREME_BACKGROUND": "on"})
    with dense_server(bench, "network", "timeline", chosen) as session:
        sizes = (bench.sizes.base, *bench.sizes.large)
        load = bench.dense_load("network", sizes, clients=bench.sizes.clients[1])
        measured = session.measure(load, sum(sizes) // len(sizes), timeout)
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError("the instance wrote no timeline")
    launches = json.loads(files[0].read_text(encoding="utf-8"))
    return {"launches": shorten(launches), "of": len(launches), **overlap(launches), "measured": measured}


def shorten(launches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Launches from the middle, so that the load is full; times from the first one's start."""
    ordered = sorted(launches, key=lambda launch: launch["h2d"][0])
    first = max(0, (len(ordered) - _KEPT) // 2)
    chosen = ordered[first : first + _KEPT]
    began = chosen[0]["h2d"][0] if chosen else 0.0
    return [
        {
            **{name: launch[name] for name in ("lane", "users", "bucket")},
            **{part: [round(time - began, 2) for time in launch[part]] for part in _PARTS},
        }
        for launch in chosen
    ]


def overlap(launches: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How much of the copies' time another launch computed in, and how long each part took.

    Returns:
        `overlapped`: share of the copies' time; and the median of each part in µs.
    """
    computing = _merged([tuple(launch["compute"]) for launch in launches])
    copying = [tuple(launch[part]) for launch in launches for part in ("h2d", "d2h")]
    total = sum(end - start for start, end in copying)
    hidden, place = 0.0, 0
    for start, end in sorted(copying):
        while place < len(computing) and computing[place][1] <= start:
            place += 1
        for other_start, other_end in itertools.islice(computing, place, None):
            if other_start >= end:
                break
            hidden += min(end, other_end) - max(start, other_start)
    found = {"overlapped": round(hidden / total, 3) if total else 0.0}
    for part in _PARTS:
        lengths = sorted(launch[part][1] - launch[part][0] for launch in launches)
        found[f"{part}_us"] = round(lengths[len(lengths) // 2], 2) if lengths else 0.0
    return found


def _merged(spans: Sequence[tuple[float, ...]]) -> list[tuple[float, float]]:
    """Spans without overlaps, ascending."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
