"""Sparse and ragged inputs for a piece on another engine: made, inside it, of the padded rows of a request.

A piece then reads one ordinary feature [rows, L], like every other.
"""

from __future__ import annotations

from typing import Any

from bireme.compiler.composites import Composite
from bireme.compiler.graph import Graph, Node, node_of, read_graph_def, tensor, tf

__all__ = ["lay_out"]


def lay_out(graph: Graph, composite: Composite) -> str:
    """Make the parts of a sparse or ragged input of a padded placeholder.

    Args:
        graph: changed in place: what read the parts reads what is made.
        composite: the input.

    Returns:
        The placeholder's node, [rows, L] of the values' dtype.
    """
    prefix = f"{composite.name}/laid_out"
    # A part that nothing reads is no longer in the graph.
    read = [graph.features.get(part) for part in composite.parts]
    whole = [None if node is None else graph.nodes[node].attr["dtype"].type for node in read]
    kinds = [tf.int64 if kind is None else tf.as_dtype(kind) for kind in whole]

    def parts(padded: Any) -> list[Any]:
        padding = tf.constant(composite.padding, padded.dtype)
        present = tf.not_equal(padded, padding)
        places = tf.where(present)
        values = tf.gather_nd(padded, places)
        if composite.kind == "sparse":
            made = [places, values, tf.shape(padded, tf.int64)]
        else:
            counts = tf.reduce_sum(tf.cast(present, tf.int64), axis=1)
            made = [values, tf.concat([tf.zeros([1], tf.int64), tf.cumsum(counts)], 0)]
        return [
            value if value.dtype == kind else tf.cast(value, kind)
            for value, kind in zip(made, kinds, strict=True)
        ]

    spec = tf.TensorSpec([None, None], tf.as_dtype(composite.dtype), "padded")
    traced = tf.function(parts, autograph=False).get_concrete_function(spec)
    for node in read_graph_def(traced.graph.as_graph_def()):
        name = f"{prefix}/{node.name}"
        graph.nodes[name] = Node(
            name, node.op, [f"{prefix}/{ref}" for ref in node.inputs], node.attr, node.value
        )
    for placeholder, made in zip(read, traced.outputs, strict=True):
        if placeholder is not None:
            graph.redirect(f"{placeholder}:0", f"{prefix}/{tensor(made.name)}")
    return f"{prefix}/{node_of(traced.inputs[0].name)}"
