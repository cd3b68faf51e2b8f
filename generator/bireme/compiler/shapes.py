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
        if node.op == "LookupTableFindV2":
            _stand_in(graph, node)
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


def _stand_in(graph: Graph, find: Node) -> None:
    """A lookup's shape is unknown to TensorFlow without its table; it is that of its keys."""
    attr, text = tf.compat.v1.AttrValue, tf.string.as_datatype_enum
    given, wanted = find.attr["Tin"], find.attr["Tout"]
    keys = find.inputs[1]
    if given.type == wanted.type:
        graph.nodes[find.name] = Node(find.name, "Identity", [keys], {"T": given})
        return
    if wanted.type == text:
        graph.nodes[find.name] = Node(find.name, "AsString", [keys], {"T": given})
        return
    if given.type == text:
        name = f"{find.name}/as_number"
        graph.nodes[name] = Node(name, "StringToHashBucketFast", [keys], {"num_buckets": attr(i=1)})
        keys, given = f"{name}:0", attr(type=tf.int64.as_datatype_enum)
    graph.nodes[find.name] = Node(find.name, "Cast", [keys], {"SrcT": given, "DstT": wanted})
