"""The family table: results as Markdown and as JSON. No times in it, and the same order always."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from catalogue import GROUPS

__all__ = ["as_json", "as_markdown", "one_line"]

Result = Mapping[str, Any]

_HEAD = """# Model families

Made by `make families`; do not edit. Each model is built with random weights, exported as a SavedModel,
compiled for the CPU target, and run as it is served: the feature plan over the exported files, then the dense
network in ONNX Runtime. Its scores are compared with the SavedModel's own, row by row, at N = 1, 7, 64 and
500 candidates with three users each: all twelve requests are one batch of the CPU side, and those of one
bucket are one execution of the dense network. Unknown, empty, long and non-ASCII strings are among them.

* **difference**: the largest |served − original| over the four N and all outputs (the goal is 1e-5, FP32).
* **columns**: what crosses the split: user columns + item columns, in how many tensors.
* **MFLOP**: matrix products of one request of 500 candidates, row-wise → user side once.
* **outside the fast path**: steps that ONNX Runtime or TensorFlow run inside `preprocess`.
"""

_COLUMNS = (
    "| model | builds | difference | columns | MFLOP | outside the fast path |",
    "|---|---|---|---|---|---|",
)


def as_json(results: Mapping[str, Result]) -> str:
    """All results, by name, in the table's order."""
    ordered = {
        name: {"by": group.by, **results[name]}
        for group in GROUPS
        for name in group.subjects
        if name in results
    }
    return json.dumps(ordered, indent=1, ensure_ascii=False) + "\n"


def as_markdown(results: Mapping[str, Result]) -> str:
    """The table with its explanation and a count."""
    good = sum(result["status"] == "builds" for result in results.values())
    lines = [_HEAD, f"{good} of {len(results)} models build and stay within 1e-5."]
    heading = ""
    for group in GROUPS:
        shown = [name for name in group.subjects if name in results]
        if not shown:
            continue
        if group.by != heading:
            heading = group.by
            lines += ["", f"## {heading[0].upper()}{heading[1:]}", "", *_COLUMNS]
        lines += [_row(name, results[name]) for name in shown]
    return "\n".join([*lines, ""])


def _row(name: str, result: Result) -> str:
    about = f" ({_cell(result['tells'])})" if result.get("tells") else ""
    head = f"| {name.split('_', 1)[1]}{about}"
    if "difference" not in result:
        return f"{head} | {result['status']}: {_cell(result['reason'])} | | | | |"
    status = "yes" if result["status"] == "builds" else result["status"]
    columns = f"{result['user_columns']} + {result['item_columns']} in {result['tensors']}"
    flops = f"{result['flops_rowwise'] / 1e6:.2f} → {result['flops'] / 1e6:.2f}"
    outside = "; ".join(map(_cell, result["outside"])) or "–"
    return f"{head} | {status} | {result['difference']:.1e} | {columns} | {flops} | {outside} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def one_line(result: Result) -> str:
    """A result for the terminal."""
    if "difference" not in result:
        return f"{result['status']}: {' '.join(result['reason'].split())[:150]}"
    return f"{result['status']}, difference {result['difference']:.1e}"
