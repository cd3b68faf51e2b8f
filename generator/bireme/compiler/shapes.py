"""Static shapes of a graph's tensors, inferred by TensorFlow."""

from __future__ import annotations

from typing import Any

from bireme.compiler.graph import Graph, Node, tf

__all__ = ["static_shapes"]


def static_shapes(graph: Graph) -> dict[str, Any]:
    """First output of every node → its tf.TensorShape; dimensions that depend on the request are None."""
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
    shapes: dict[str, Any] = {}

    def trace() -> None:
        current = tf.compat.v1.get_default_graph()
        handles = {f"{node}:0": current.capture(c.handle) for node, c in kept.captures.items()}
        # An op without outputs cannot be fetched; a pure graph that ends in its outputs has none.
        names = [node.output for node in kept.nodes.values() if node.name not in kept.captures]
        found = tf.graph_util.import_graph_def(kept.to_graph_def(), input_map=handles, return_elements=names)
        shapes.update({name: value.shape for name, value in zip(names, found, strict=True)})

    tf.function(trace, autograph=False).get_concrete_function()
    return shapes
