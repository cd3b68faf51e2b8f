"""The report's part on CUDA Graphs, as a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["graphs_line"]


def graphs_line(data: Mapping[str, Any]) -> str:
    """The report's `graphs` (emitter/graph_budget.py) as one sentence for whoever builds."""
    users = ", ".join(map(str, data["users"]))
    estimate = data["estimate"]
    buckets = len(data["shapes"]) // len(data["users"])
    left_out = ", ".join(map(str, data["left_out"]))
    dropped = f"; left out by the budget: {left_out}" if left_out else ""
    return (
        f"CUDA Graphs for {users} users x {buckets} buckets{dropped}: {data['captures']} captures on a GPU"
        f" ({data['copies_per_instance']} in each of {data['instances']} instances), roughly"
        f" {estimate['memory_mb']} MB and {estimate['load_seconds']} s at load"
    )
