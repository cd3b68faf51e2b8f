"""Part of split: tables that the model computes from its weights (normalised rows, say) become tables proper.

Folding has evaluated them to constants; a lookup at ids made of features then belongs to the CPU side.
"""

from __future__ import annotations

import numpy as np

from bireme.compiler.cut.lineage import Lineage
from bireme.compiler.cut.reads import GATHERS
from bireme.compiler.graph import Capture, Graph, Node, node_of, tf

__all__ = ["adopt_constant_tables"]


def adopt_constant_tables(graph: Graph) -> Graph:
    """Put a variable behind every constant that is read by rows at ids which depend on raw features."""
    graph = graph.copy()
    lineage = Lineage(graph)
    adopted: dict[str, str] = {}
    for node in list(graph.nodes.values()):
        if node.op not in GATHERS or node.op == "ResourceGather":
            continue
        table, ids = (node.inputs[index] for index in GATHERS[node.op])
        value = graph.constant(table)
        if value is None or value.dtype != np.float32 or value.ndim != 2 or not value.size:
            continue
        axis = graph.constant(node.inputs[2]) if node.op == "GatherV2" else np.zeros(())
        if axis is None or axis.reshape(-1)[0] != 0 or not lineage.is_raw(ids):
            continue
        if lineage.carries_values(ids):
            if table not in adopted:
                adopted[table] = _adopt(graph, node_of(table), value)
            node.inputs[GATHERS[node.op][0]] = adopted[table]
    graph = graph.keep(graph.ancestors(graph.outputs.values()))
    graph.sort()
    return graph


def _adopt(graph: Graph, name: str, value: np.ndarray) -> str:  # type: ignore[type-arg]
    """A variable of this value and its read; returns the read's tensor."""
    variable = tf.Variable(value, trainable=False, name=name.replace("/", "_"))
    attr = tf.compat.v1.AttrValue
    handle = Node(
        f"{name}/table",
        "Placeholder",
        [],
        {
            "dtype": attr(type=tf.resource.as_datatype_enum),
            "shape": attr(shape=tf.TensorShape([]).as_proto()),
        },
    )
    read = Node(f"{name}/read", "ReadVariableOp", [handle.output], {"dtype": attr(type=1)})
    graph.nodes = {handle.name: handle, read.name: read, **graph.nodes}
    graph.captures[handle.name] = Capture("variable", variable.handle, variable)
    return read.output
