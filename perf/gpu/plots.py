"""Pictures of what check.py found: drawn from its JSON, so on any machine.

python perf/gpu/plots.py --results perf/results/gpu.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

from matplotlib.figure import Figure

from files import write_figure

__all__ = ["ENSEMBLE", "PICTURES", "closest", "draw_all", "in_order", "main"]

Results = Mapping[str, Any]
#: Steps that measure the network's ensemble.
ENSEMBLE = ("ensemble end to end", "ensemble end to end, MPS")
_PLAIN, _GRAPHS, _MPS, _EAGER = "#9aa5b1", "#1b7837", "#2166ac", "#b2182b"
_LANES = ("#1b7837", "#2166ac", "#8a6d00", "#762a83")
_COPY = {"h2d": "//", "compute": "", "d2h": "\\\\"}


def _color(name: str) -> str:
    if "eager" in name:
        return _EAGER
    if "MPS" in name:
        return _MPS
    return _PLAIN if "no graphs" in name else _GRAPHS


def _rows(results: Results) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, measurement with the first number of clients) of each configuration of the network alone."""
    found = [(name, result["closed"][0]) for name, result in results.items() if "closed" in (result or {})]
    if results.get("eager"):
        loads = results["eager"]["loads"]
        found.append(("eager FP32, operator by operator", loads[min(1, len(loads) - 1)]))
    return sorted(found, key=lambda row: row[1]["requests_per_s"])


def throughput(results: Results) -> Figure | None:
    """Requests a second, P99, and how busy the GPU was, by configuration."""
    rows = _rows(results)
    if not rows:
        return None
    names = [name for name, _ in rows]
    panels: list[tuple[str, list[float]]] = [
        ("requests/s", [row["requests_per_s"] for _, row in rows]),
        ("P99, ms", [row["p99_us"] / 1e3 for _, row in rows]),
    ]
    if all(row.get("gpu_percent") is not None for _, row in rows):
        panels.append(("GPU busy, % of the time", [row["gpu_percent"] for _, row in rows]))
    first = rows[0][1]
    title = f"The dense network alone, {first['rows']} candidates a request, {rows[-1][1]['clients']} clients"
    return _bars(title, names, panels, [_color(name) for name in names])


def offered(results: Results) -> Figure | None:
    """P50 and P99 of configurations that get the same requests at the same times."""
    rows = [(n, r["offered"]) for n, r in results.items() if (r or {}).get("offered")]
    if not rows:
        return None
    rows.sort(key=lambda row: (-row[1]["offered_per_s"], -row[1]["p99_us"]))
    names = [f"{name}, {row['offered_per_s']:,.0f}/s" for name, row in rows]
    panels = [
        (label, [row[key] / 1e3 for _, row in rows])
        for label, key in (("P50, ms", "p50_us"), ("P99, ms", "p99_us"))
    ]
    title = "Equal offered load: requests at random times, at a rate that one instance without graphs bears"
    return _bars(title, names, panels, [_color(name) for name in names])


def user_once(results: Results) -> Figure | None:
    """Bytes, latency of one client and throughput, with the user's columns once and repeated."""
    found = results.get("user once or not")
    if not found:
        return None
    names, colors = [], []
    values: list[list[float]] = [[], [], []]
    for candidates in sorted(found["on"], key=int):
        for label, word, color in (("off", "user repeated", _PLAIN), ("on", "user once", _GRAPHS)):
            row = found[label][candidates]
            names.append(f"N = {candidates}, {word}")
            colors.append(color)
            values[0].append((row["bytes_in"] + row["bytes_out"]) / 1e3)
            values[1].append(row["alone"]["p50_us"] / 1e3)
            values[2].append(row["loaded"]["requests_per_s"])
    labels = ("kB over PCIe a request", "P50 of one client, ms", "requests/s, several clients")
    return _bars("The user's side once a request", names, list(zip(labels, values, strict=True)), colors)


def whole(results: Results) -> Figure | None:
    """Raw features to scores: the ensemble, and the whole model eagerly in one process."""
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for variant in (v for step in ENSEMBLE for v in (results.get(step) or {}).values()):
        many = variant["preprocess"] > 1
        name = f"ensemble, {variant['preprocess']} feature process{'es' if many else ''}"
        name += ", MPS" * variant["mps"]
        rows += [(f"{name}, {load['clients']} clients", load) for load in variant["loads"]]
    eager = results.get("whole model, eager")
    rows += [
        (f"eager, one process, {load['clients']} clients", load) for load in (eager or {"loads": []})["loads"]
    ]
    if not rows:
        return None
    rows.reverse()
    names = [name.replace(" 1 clients", " 1 client") for name, _ in rows]
    panels = [
        ("requests/s", [row["requests_per_s"] for _, row in rows]),
        ("P50, ms", [row["p50_us"] / 1e3 for _, row in rows]),
        ("P99, ms", [row["p99_us"] / 1e3 for _, row in rows]),
    ]
    return _bars("Raw features to scores", names, panels, [_color(name) for name in names])


def timeline(results: Results) -> Figure | None:
    """Copies and computation of the lanes of one instance: a while, and its moment with the most overlap."""
    found = results.get("timeline")
    if not found:
        return None
    lanes = sorted({launch["lane"] for launch in found["launches"]})
    figure = Figure(figsize=(11, 2.2 + 1.4 * len(lanes)), layout="constrained")
    panels = figure.subplots(2, 1)
    start, end = closest(found["launches"])
    for panel in panels:
        _draw_lanes(panel, found["launches"], lanes)
    panels[0].axvspan(start, end, color="#fee08b", alpha=0.6, lw=0)
    panels[1].set_xlim(start, end)
    panels[0].set_title(
        f"{found['overlapped']:.0%} of the copies' time another launch computes", fontsize=10, loc="left"
    )
    panels[1].set_title("the marked moment", fontsize=10, loc="left")
    panels[1].set_xlabel("µs · filled: computation, hatched: copies to (//) and from (\\\\) the GPU")
    figure.suptitle("Lanes of one instance under full load", fontsize=13, x=0.01, ha="left")
    return figure


def closest(launches: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """From when to when the two launches take that are most under way at the same time, with some room."""
    ordered = sorted(launches, key=lambda launch: launch["h2d"][0])
    if len(ordered) < 2:
        return ordered[0]["h2d"][0], ordered[0]["d2h"][1]

    def shared(pair: tuple[Mapping[str, Any], Mapping[str, Any]]) -> float:
        one, other = pair
        return float(min(one["d2h"][1], other["d2h"][1]) - max(one["h2d"][0], other["h2d"][0]))

    one, other = max(itertools.pairwise(ordered), key=shared)
    start, end = min(one["h2d"][0], other["h2d"][0]), max(one["d2h"][1], other["d2h"][1])
    room = 0.05 * (end - start)
    return start - room, end + room


def _draw_lanes(panel: Any, launches: Sequence[Mapping[str, Any]], lanes: Sequence[int]) -> None:
    for launch in launches:
        line = lanes.index(launch["lane"])
        for part, (start, end) in ((part, launch[part]) for part in _COPY):
            panel.barh(
                line,
                end - start,
                left=start,
                height=0.42 if part == "compute" else 0.7,
                color=_LANES[line % len(_LANES)] if part == "compute" else "#d9d9d9",
                hatch=_COPY[part],
                edgecolor="white" if part == "compute" else "#555555",
                lw=0.5,
            )
    panel.set_yticks(range(len(lanes)), [f"lane {lane}" for lane in lanes])
    panel.set_ylim(len(lanes) - 0.5, -0.5)
    panel.spines[["top", "right", "left"]].set_visible(False)


PICTURES: dict[str, Callable[[Results], Figure | None]] = {
    "throughput": throughput,
    "offered": offered,
    "user_once": user_once,
    "whole": whole,
    "timeline": timeline,
}


def in_order(found: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a check in the order in which its steps ran."""
    return {name: found["results"][name] for name in found["order"] if name in found["results"]}


def draw_all(results: Results, stem: Path) -> list[Path]:
    """Draw what there are results for: `stem` with `_throughput.png` and so on; the files."""
    written = []
    for name, draw in PICTURES.items():
        figure = draw(results)
        if figure is not None:
            written.append(stem.with_name(f"{stem.name}_{name}.png"))
            write_figure(written[-1], figure)
    return written


def _bars(
    title: str, names: Sequence[str], panels: Sequence[tuple[str, Sequence[float]]], colors: Sequence[str]
) -> Figure:
    figure = Figure(figsize=(12, 1.2 + 0.42 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (label, values) in zip(axes, panels, strict=True):
        axis.barh(range(len(names)), values, color=colors, height=0.62)
        for line, value in enumerate(values):
            text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            axis.annotate(
                text, (value, line), xytext=(3, 0), textcoords="offset points", va="center", fontsize=9
            )
        axis.set_title(label, fontsize=11)
        axis.set_xlim(0, 1.2 * max([*values, 1e-9]))
        axis.grid(axis="x", alpha=0.3)
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(names)), names)
    figure.suptitle(title, fontsize=13, x=0.01, ha="left")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("perf/results/gpu.json"), help="by check.py")
    parser.add_argument("--out", type=Path, help="stem of the pictures; default: that of the results")
    options = parser.parse_args(arguments)
    results = in_order(json.loads(options.results.read_text(encoding="utf-8")))
    for path in draw_all(results, options.out or options.results.with_suffix("")):
        print(path)


if __name__ == "__main__":
    main()
