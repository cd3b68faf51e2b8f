"""Static shapes and dtypes of a graph's tensors, inferred by TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.compiler.graph import Graph, Node, tf

__all__ = ["TensorSpec", "static_shapes", "tensor_specs"]


@dataclass(frozen=True)
class TensorSpec:
    """What is known of a tensor before any request.

    Args:
        dtype: numpy name, or "string", "resource", "variant".
        shape: None where it depends on the request; None as a whole: unknown rank.
    """

    dtype: str
    shape: tuple[int | None, ...] | None


def static_shapes(graph: Graph) -> dict[str, Any]:
    """First output of every node → its tf.TensorShape; dimensions that depend on the request are None."""
    return {ref: tf.TensorShape(spec.shape) for ref, spec in tensor_specs(graph).items() if ref[-2:] == ":0"}


def tensor_specs(graph: Graph) -> dict[str, TensorSpec]:
    """Every output of every node that the graph's outputs need → its dtype and shape."""
    graph = graph.copy()
    for node in list(graph.nodes.values()):
        # A lookup's shape is unknown to TensorFlow without its table; it is that of its keys.
        if node.op == "LookupTableFindV2":
            attr, text = tf.compat.v1.AttrValue, tf.string.as_datatype_enum
            kinds = {"SrcT": node.attr["Tin"], "DstT": node.attr["Tout"], "T": node.attr["Tin"]}
            if kinds["SrcT"].type != text:
                op = "AsString" if kinds["DstT"].type == text else "Cast"
            else:
                op = "Identity" if kinds["DstT"].type == text else "StringToHashBucketFast"
            kept_attr = {
                "AsString": {"T": kinds["T"]},
                "Identity": {"T": kinds["T"]},
                "Cast": {"SrcT": kinds["SrcT"], "DstT": kinds["DstT"]},
                "StringToHashBucketFast": {"num_buckets": attr(i=1)},
            }[op]
            graph.nodes[node.name] = Node(node.name, op, [node.inputs[1]], kept_attr)
    kept = graph.keep(graph.ancestors(graph.outputs.values()))
    specs: dict[str, TensorSpec] = {}

    def trace() -> None:
        current = tf.compat.v1.get_default_graph()
        handles = {f"{node}:0": current.capture(c.handle) for node, c in kept.captures.items()}
        tf.graph_util.import_graph_def(kept.to_graph_def(), input_map=handles, name="seen")
        for name in kept.nodes:
            if name in kept.captures:
                continue
            for index, value in enumerate(current.get_operation_by_name(f"seen/{name}").outputs):
                shape = tuple(value.shape.as_list()) if value.shape.rank is not None else None
                specs[f"{name}:{index}"] = TensorSpec(value.dtype.base_dtype.name, shape)

    tf.function(trace, autograph=False).get_concrete_function()
    return specs
