"""What the user side ahead of time saves: counted from the graphs, the same on every machine.

Compared are `slices` one-shot requests, each with the user, and one call for the user followed by as many
slices. `saved` is the share of the first that the second does without. Counts say where work goes away, not
what it costs: user_ahead_timing.py measures that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from bireme.compiler.ahead.user_ahead import Ahead
from bireme.compiler.pipeline import Compiled
from bireme.compiler.rows.costs import flops_per_request
from bireme.requests import Request, part_for, to_tensors
from bireme_runtime.batching import bucket_for
from bireme_runtime.plan import Feature

__all__ = ["SLICES", "add_to_report", "resized", "saved_share"]

#: What the report speaks of: 5,000 candidates in slices of 500, or of the largest bucket if that is smaller.
SLICES, _CANDIDATES = 10, 500


def add_to_report(report: dict[str, Any], compiled: Compiled, ahead: Ahead) -> None:
    """Add the section `user_ahead`, and the pass, to a report of `report.as_data`."""
    plan, parts = compiled.plan, ahead.parts
    candidates = min(_CANDIDATES, plan.buckets[-1])
    padded = bucket_for(candidates, plan.buckets)
    requests = [resized(plan.features, sample, candidates) for sample in ahead.samples]
    counts: dict[str, dict[str, float]] = {}
    for what, features, model in (
        ("one_shot", plan.features, compiled.dense),
        ("user", parts.user_plan.features, ahead.networks.user),
        ("slice", parts.slice_plan.features, ahead.networks.items),
    ):
        values, size = np.mean([_size(features, request) for request in requests], axis=0).tolist()
        counts[what] = {
            "feature_values": values,
            "request_bytes": size + (4 * parts.width if what == "slice" else 0),
            "flops": flops_per_request(model, padded),
            "weight_bytes": sum(
                onnx.numpy_helper.to_array(weight).nbytes for weight in model.graph.initializer
            ),
        }
    report["user_ahead"] = {
        "slices": SLICES,
        "candidates": candidates,
        "state_bytes": 4 * parts.width,
        "state": [
            {"columns": [piece.offset, piece.offset + piece.width], "shape": list(piece.rest)}
            for piece in ahead.networks.pieces
        ],
        "sent_with_each_slice": [f.name for f in parts.slice_plan.features if f.side == "user"],
        "nodes_ahead": ahead.networks.nodes_ahead,
        "counts": counts,
        "saved": {
            key: saved_share({part: counts[part][key] for part in counts}, SLICES) for key in counts["slice"]
        },
    }
    entry = {
        "pass": "user_ahead",
        "nodes": len(ahead.networks.user.graph.node) + len(ahead.networks.items.graph.node),
        "max_difference": ahead.difference,
    }
    report["passes"].append(entry)


def saved_share(cost: Mapping[str, float], slices: int) -> float:
    """1 - (user + slices · slice) / (slices · one-shot); 0 where the one-shot path has no such work."""
    whole = slices * cost["one_shot"]
    return 1 - (cost["user"] + slices * cost["slice"]) / whole if whole else 0.0


def resized(features: Sequence[Feature], request: Request, candidates: int) -> Request:
    """A request with another number of candidates: its own, over and over; optional ones may be missing."""
    items = {}
    for feature in features:
        if feature.side == "item":
            given = request["items"].get(feature.name)
            given = given if given is not None and len(given) else [feature.default]
            items[feature.name] = [given[index % len(given)] for index in range(candidates)]
    return {"user": request["user"], "items": items}


def _size(features: Sequence[Feature], request: Request) -> tuple[int, int]:
    """Values, and bytes on the wire (4 before each string), of what a model takes of a request."""
    tensors = to_tensors(features, part_for(features, request))
    values = sum(array.size for array in tensors.values())
    size = 0
    for array in tensors.values():
        flat = array.reshape(-1)
        size += sum(4 + len(text) for text in flat) if array.dtype == object else array.nbytes
    return values, size
