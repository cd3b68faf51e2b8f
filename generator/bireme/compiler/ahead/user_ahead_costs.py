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
from bireme.compiler.dense import runner
from bireme.compiler.pipeline import Compiled
from bireme.requests import Request, part_for, to_tensors
from bireme_runtime.batching import bucket_for
from bireme_runtime.plan import Feature

__all__ = ["SLICES", "add_to_report", "matrix_flops", "resized", "saved_share"]

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
            "flops": matrix_flops(model, padded),
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


def matrix_flops(model: onnx.ModelProto, candidates: int) -> int:
    """Multiply-adds × 2 of all matrix products for one user, from the shapes that really occur.

    Args:
        model: a lifted network; its inputs are [users, width] and, for `items`, [users, candidates, width].
        candidates: N, after padding.
    """
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    products = [node for node in probe.graph.node if node.op_type in ("MatMul", "Gemm")]
    weights = {weight.name: list(weight.dims) for weight in probe.graph.initializer}
    known = {value.name for value in (*probe.graph.output, *probe.graph.input)}
    asked = dict.fromkeys(name for node in products for name in (node.input[0], node.output[0]))
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked if name not in known)
    feeds = {}
    for value in probe.graph.input:
        tensor = value.type.tensor_type
        dims = [dim.dim_value for dim in tensor.shape.dim]
        shape = [1, candidates, dims[-1]] if value.name == "items" else [1, *dims[1:]]
        feeds[value.name] = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    shapes = {name: array.shape for name, array in {**feeds, **runner(probe)(feeds)}.items()}
    shapes |= {name: tuple(dims) for name, dims in weights.items()}
    total = 0
    for node in products:
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        inner = shapes[node.input[0]][-2 if transposed else -1]
        total += 2 * int(np.prod(shapes[node.output[0]], dtype=int)) * inner
    return total


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
