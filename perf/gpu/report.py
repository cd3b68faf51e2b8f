"""The results as Markdown, from JSON: `python perf/gpu/report.py` writes docs/gpu-results.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

from gpu.plots import ENSEMBLE, PICTURES, in_order

__all__ = ["as_markdown", "main"]

Row = Sequence[str]


def as_markdown(found: Mapping[str, Any], pictures: str = "") -> str:
    """All results of one check.

    Args:
        found: what check.py wrote.
        pictures: path of the pictures up to `_throughput.png`, as seen from the document; empty: none.
    """
    results = in_order(found)
    parts = [
        [
            "# GPU: measured",
            "",
            "Written by `perf/gpu/report.py` from the JSON that `make gpu-check` leaves.",
        ],
        list(_machine(results.get("facts") or {})),
        list(_verdicts(found["verdicts"])),
        list(_builds(results)),
        list(_scores(results)),
        list(_throughput(results)),
        list(_offered(results)),
        list(_user_once(results.get("user once or not") or {})),
        list(_whole(results)),
        list(_timeline(results.get("timeline") or {})),
        [
            f"![{name}]({pictures}_{name}.png)"
            for name, draw in PICTURES.items()
            if pictures and draw(results)
        ],
        list(_missing(found["missing"])),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _table(headings: Row, rows: Sequence[Row]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join(' --- ' for _ in headings)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _machine(facts: Mapping[str, Any]) -> Iterator[str]:
    gpu, machine = facts.get("gpu"), facts.get("machine")
    if gpu and machine:
        yield (
            f"{gpu['name']} (compute capability {gpu['compute_capability']}, driver {gpu['driver']}),"
            f" TensorRT {facts['tensorrt']}, {machine['cores']} cores of {machine['processor']}."
        )
    for what, targets in (facts.get("prepared") or {}).get("builds", {}).items():
        for target, built in targets.items():
            nodes = {step["pass"]: step["nodes"] for step in built.get("passes", [])}
            text = ", ".join(f"{count} after {name}" for name, count in nodes.items() if name in _TOLD)
            yield f"* `{what}`, target {target}: {text}; {built.get('onnx_nodes')} ONNX nodes in the end"


_TOLD = ("dense", "user_once", "precision")


def _verdicts(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not verdicts:
        return
    yield "## What was asked for\n"
    rows = [
        (v["claim"], v["wanted"], "" if v["found"] is None else f"{v['found']:,.2f}", v["verdict"])
        for v in verdicts
    ]
    yield from _table(("claim", "wanted", "found", ""), rows)


def _builds(results: Mapping[str, Any]) -> Iterator[str]:
    """How long engines took to build, and the tests that need a GPU."""
    yield "## Engines, tests, scores\n"
    for name, result in results.items():
        if name.startswith("engine of") and result:
            yield (
                f"* {name}: {result['seconds']:.1f} s with the start of Python and TensorRT,"
                f" {result['plan_bytes'] / 1e6:.1f} MB"
            )
        if name == "GPU tests" and result:
            skipped = len(result["skipped"])
            yield f"* tests/gpu passed; {skipped or 'none'} of them skipped"


def _scores(results: Mapping[str, Any]) -> Iterator[str]:
    for name, result in results.items():
        compared = (result or {}).get("verify") if name.startswith("scores of") else None
        if not isinstance(compared, Mapping):
            continue
        for part in compared["scores"]:
            yield (
                f"* {name} over {part['protocol']}: {part['requests']:,} requests, {part['scores']:,}"
                f" scores, largest difference {part['max_difference']:.1e}"
            )
        for network in compared["networks"]:
            ordered, graphs = network["sequences"], network["graphs"]
            launched = graphs["launches_of_unknown_shape"] + sum(e["count"] for e in graphs["launches"])
            plain = graphs["plain_of_unknown_shape"] + sum(e["count"] for e in graphs["plain"])
            yield (
                f"* {name}, `{network['model']}`: {launched:,} graph launches, {plain:,} plain executions;"
                f" {ordered['compared']:,} answers in sequences of shapes, {ordered['bit_equal']:,} equal to"
                f" plain execution bit by bit, largest difference {ordered['largest']:.1e} of the largest"
                f" value; {ordered['repeated']:,} repeated, {ordered['changed']:,} of them changed"
            )


def _loads(results: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, result in results.items():
        for load in (result or {}).get("closed", []):
            yield name, load
        if name == "eager":
            for load in result["loads"]:
                yield "eager FP32, operator by operator", load


def _throughput(results: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            name,
            f"b{load['rows']} c{load['clients']}",
            f"{load['requests_per_s']:,.0f}",
            f"{load['rows_per_s'] / 1e6:.2f} M",
            f"{load['p50_us']:,.0f}",
            f"{load['p99_us']:,.0f}",
            f"{load['merged']:.2f}",
            _percent(load),
            f"{sum(load.get('cores', {}).values()):.1f}",
        )
        for name, load in _loads(results)
    ]
    if rows:
        yield "## The dense network alone\n"
        headings = (
            "configuration",
            "load",
            "req/s",
            "rows/s",
            "P50 µs",
            "P99 µs",
            "merged",
            "GPU %",
            "cores",
        )
        yield from _table(headings, rows)


def _offered(results: Mapping[str, Any]) -> Iterator[str]:
    loads = [(name, result["offered"]) for name, result in results.items() if (result or {}).get("offered")]
    if loads:
        yield "## Equal offered load: requests at random times\n"
        rows = [
            (name, *(f"{load[key]:,.0f}" for key in ("offered_per_s", "p50_us", "p99_us")), _percent(load))
            for name, load in loads
        ]
        yield from _table(("configuration", "req/s", "P50 µs", "P99 µs", "GPU %"), rows)


def _user_once(found: Mapping[str, Any]) -> Iterator[str]:
    if found:
        yield "## The user's side once, or repeated for every candidate\n"
        rows = [
            (
                candidates,
                {"on": "once", "off": "repeated"}[label],
                f"{row['bytes_in']:,}",
                f"{row['bytes_out']:,}",
                f"{row['alone']['p50_us']:,.0f}",
                f"{row['loaded']['requests_per_s']:,.0f}",
                f"{row['loaded']['p99_us']:,.0f}",
            )
            for candidates in sorted(found["on"], key=int)
            for label, row in ((label, found[label][candidates]) for label in ("off", "on"))
        ]
        headings = ("N", "user", "bytes in", "bytes out", "P50 µs, one client", "req/s, loaded", "P99 µs")
        yield from _table(headings, rows)


def _whole(results: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Row] = []
    for name in (*ENSEMBLE, "example end to end"):
        for variant in (results.get(name) or {}).values():
            label = f"{name.split()[0]}, {variant['preprocess']} + {variant['dnn']} processes"
            label += ", MPS" * variant["mps"]
            rows += [_line(label, load) for load in variant["loads"]]
    eager = results.get("whole model, eager")
    rows += [_line("eager, one process", load) for load in (eager or {"loads": []})["loads"]]
    if rows:
        yield "## Raw features to scores\n"
        yield from _table(("", "load", "req/s", "P50 µs", "P99 µs", "GPU %", "bottleneck"), rows)


def _line(label: str, load: Mapping[str, Any]) -> Row:
    return (
        label,
        f"N{load['rows']} c{load['clients']}",
        f"{load['requests_per_s']:,.0f}",
        f"{load['p50_us']:,.0f}",
        f"{load['p99_us']:,.0f}",
        _percent(load),
        load.get("bottleneck", ""),
    )


def _timeline(found: Mapping[str, Any]) -> Iterator[str]:
    if found:
        yield "## Overlap\n"
        times = (found[part] for part in ("h2d_us", "compute_us", "d2h_us"))
        copy_in, compute, copy_out = (f"{time:.1f} µs" for time in times)
        yield (
            f"Medians of a launch: copy in {copy_in}, computation {compute}, copy out {copy_out}; during"
            f" {found['overlapped']:.0%} of the copies' time another launch computes."
        )


def _missing(missing: Mapping[str, str]) -> Iterator[str]:
    if missing:
        yield "## Not measured\n"
        yield from (f"* {name}: {why}" for name, why in missing.items())


def _percent(load: Mapping[str, Any]) -> str:
    busy = load.get("gpu_percent")
    return "" if busy is None else f"{busy:.0f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("perf/results/gpu.json"), help="by check.py")
    parser.add_argument("--out", type=Path, default=Path("docs/gpu-results.md"), help="document to write")
    parser.add_argument("--pictures", default="../perf/results/gpu", help="as seen from the document")
    options = parser.parse_args(arguments)
    found = json.loads(options.results.read_text(encoding="utf-8"))
    options.out.write_text(as_markdown(found, options.pictures), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
