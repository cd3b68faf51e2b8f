"""Lookup tables of TensorFlow 1: ops in the graph, where TensorFlow 2 has captured handles.

A session finds such a table by its `shared_name`; so does the same op when it is executed eagerly, after the
SavedModel's initialisers have run (kernels: tensorflow/core/kernels/lookup_table_op.h).
"""

from __future__ import annotations

from bireme.compiler.graph import Capture, Graph, Node, tf
from bireme.errors import CompileError

__all__ = ["bind_session_tables"]


def bind_session_tables(graph: Graph) -> None:
    """Replace every HashTableV2 by a reference to the table that it names, in place.

    Raises:
        CompileError: a table is empty, as one is that the SavedModel does not initialise.
    """
    for node in [node for node in graph.nodes.values() if node.op == "HashTableV2"]:
        handle = tf.raw_ops.HashTableV2(
            key_dtype=node.attr["key_dtype"].type,
            value_dtype=node.attr["value_dtype"].type,
            container=node.attr["container"].s,
            shared_name=node.attr["shared_name"].s or node.name,
        )
        if not tf.raw_ops.LookupTableSizeV2(table_handle=handle).numpy():
            raise CompileError(
                f"lookup table '{node.name}'",
                "is empty: loading the SavedModel does not fill it",
                "export the model with its table initialiser (`main_op=tf.compat.v1.tables_initializer()`)",
            )
        attr = {"dtype": tf.compat.v1.AttrValue(type=tf.resource.as_datatype_enum)}
        graph.nodes[node.name] = Node(node.name, "Placeholder", [], attr)
        graph.captures[node.name] = Capture("lookup", handle)
