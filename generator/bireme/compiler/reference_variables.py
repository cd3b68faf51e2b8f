"""TensorFlow 1's reference variables: nodes that hold their value themselves, in place of a handle to it.

A graph with such nodes runs only where they were restored. Here each becomes what the compiler knows: a
captured handle of a variable with the same value, and a read of it.
"""

from __future__ import annotations

from typing import Any

from bireme.compiler.graph import Capture, Graph, Node, tf
from bireme.errors import CompileError

__all__ = ["adopt_reference_variables"]

_KINDS = {"Variable", "VariableV2"}


def adopt_reference_variables(graph: Graph, function: Any) -> None:
    """Replace the graph's reference variables, in place; their values are copied once.

    Args:
        graph: the inlined signature.
        function: the loaded signature, whose variables are restored.

    Raises:
        CompileError: a variable's value cannot be had.
    """
    for node in [node for node in graph.nodes.values() if node.op in _KINDS]:
        # No function may return a reference, only what an op makes of it.
        readers = function.graph.as_graph_element(node.output).consumers()
        read = next((reader for reader in readers if reader.type == "Identity"), None)
        if read is None:
            raise CompileError(
                f"variable '{node.name}'",
                "is one of TensorFlow 1's reference variables, and nothing reads it by itself",
                "export the model with `tf.compat.v1.enable_resource_variables()`",
            )
        (value,) = function.prune([], [read.outputs[0]])()
        variable = tf.Variable(value, trainable=False, name=node.name)
        handle = f"{node.name}/handle"
        while handle in graph.nodes:
            handle += "_"
        attr = tf.compat.v1.AttrValue
        scalar = attr(shape=tf.TensorShape([]).as_proto())
        kind = {"dtype": attr(type=tf.resource.as_datatype_enum), "shape": scalar}
        value_node = Node(node.name, "ReadVariableOp", [f"{handle}:0"], {"dtype": node.attr["dtype"]})
        graph.nodes = {handle: Node(handle, "Placeholder", [], kind), **graph.nodes, node.name: value_node}
        graph.captures[handle] = Capture("variable", variable.handle, variable)
