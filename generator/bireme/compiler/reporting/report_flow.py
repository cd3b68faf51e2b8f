"""Behind the picture of the report: where each block of columns comes from, the dense network in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from bireme.compiler.cut.boundary import Boundary
from bireme.compiler.fp16.layers import origin
from bireme.compiler.rows.costs import flops_per_node
from bireme_runtime.plan import Admitted, Counted, Embed, Numeric, Step, Subgraph
from bireme_runtime.text_steps import features_behind, sources_of

__all__ = ["block_origin", "dense_parts"]


def block_origin(
    boundary: Boundary, steps: Sequence[Step], reasons: Mapping[str, str], phrase: Callable[[Any], str]
) -> dict[str, Any]:
    """Where the columns of a boundary come from.

    Args:
        boundary: what crosses.
        steps: the feature plan's.
        reasons: subgraph step → what needs it.
        phrase: what a step does, in words.

    Returns:
        `features` it is made of, `how` on the CPU, `table` (or None), and the slowest `engine` that it needs:
        "native", "onnx" or "tensorflow".
    """
    made_by: dict[str, Any] = {step.name: step for step in steps}
    last: Any = None
    for step in steps:
        if isinstance(step, Subgraph):
            made_by |= {output.name: step for output in step.outputs if output.name}
            ends = [(step.side, output.offset) for output in step.outputs if output.width]
        else:
            ends = [(step.side, step.offset)] if isinstance(step, (Embed, Numeric, Admitted, Counted)) else []
        if (boundary.side, boundary.offset) in ends:
            last = step
    engines: dict[str, str] = {}
    seen, left = set[str](), [last]
    while left:
        step = left.pop()
        if isinstance(step, Subgraph):
            engines.setdefault(step.engine, reasons[step.name])
        seen.add(step.name)
        left += [
            made_by[name] for name in sources_of(step) if name in made_by and made_by[name].name not in seen
        ]
    features = [name for source in sources_of(last) for name in features_behind(steps, source)]
    engine = next((name for name in ("tensorflow", "onnx") if name in engines), "native")
    how = [engines[engine]] if engines else []
    return {
        "features": list(dict.fromkeys(features)),
        "how": ", ".join([*how, *([] if isinstance(last, Subgraph) else [phrase(last)])]),
        "table": last.table if isinstance(last, Embed) else None,
        "engine": engine,
    }


def dense_parts(model: onnx.ModelProto, candidates: int) -> dict[str, Any]:
    """What of a lifted network runs once per user, and what once per candidate.

    Args:
        model: inputs `user` and `items`; nodes documented with their origin.
        candidates: N that work is counted for.

    Returns:
        Part → its `nodes`, `flops` of its matrix products for a request, and those `products`, in order.
    """
    varies = {"items"}
    parts: dict[str, dict[str, Any]] = {
        name: {"nodes": 0, "flops": 0, "products": []} for name in ("user_once", "per_candidate")
    }
    for node, flops in zip(model.graph.node, flops_per_node(model, candidates), strict=True):
        part = parts["user_once"]
        if varies.intersection(node.input):
            varies.update(node.output)
            part = parts["per_candidate"]
        part["nodes"] += 1
        part["flops"] += flops
        if flops:
            part["products"].append({"name": origin(node), "op": node.op_type, "flops": flops})
    return {"candidates": candidates, **parts}
