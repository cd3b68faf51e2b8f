"""Refuses what has no one right score: random numbers, clocks, Python callbacks, state that calls change."""

from __future__ import annotations

from bireme.compiler.graph import Graph, Node, node_of, read_graph_def, tf
from bireme.errors import CompileError

__all__ = ["refuse_impure"]

_RANDOM = (
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "Random",
    "RngRead",
    "StatefulRandom",
    "StatefulStandardNormal",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "TruncatedNormal",
)
_CALLBACKS = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


def refuse_impure(graph: Graph) -> None:
    """Look at all that the outputs need, into the bodies of loops and branches.

    Args:
        graph: the graph as it was loaded.

    Raises:
        CompileError: naming the op.
    """
    needed = graph.ancestors(graph.outputs.values())
    nodes = [node for name, node in graph.nodes.items() if name in needed]
    if graph.library is not None:
        functions = {function.signature.name: function for function in graph.library.function}
        nodes += [body for function in _called(nodes, functions) for body in function]
    for node in nodes:
        _refuse(node)
    read = {node_of(node.inputs[0]) for node in nodes if node.op == "ReadVariableOp"}
    for node in graph.nodes.values():
        if node.op.startswith("Assign") and node.inputs and node_of(node.inputs[0]) in read:
            raise CompileError(
                f"op {node.op} (node '{node.name}')",
                "changes a variable that the scores depend on, so they depend on earlier requests",
                "export the model in inference mode",
            )


def _called(nodes: list[Node], functions: dict[str, object]) -> list[list[Node]]:
    """The bodies that nodes call, and those that these call."""
    found: dict[str, list[Node]] = {}
    left = list(nodes)
    while left:
        attributes = (left.pop().attr or {}).values()
        for attribute in attributes:
            for name in (attribute.func.name, *(func.name for func in attribute.list.func)):
                if name in functions and name not in found:
                    body = functions[name].node_def  # type: ignore[attr-defined]
                    found[name] = list(read_graph_def(tf.compat.v1.GraphDef(node=body)))
                    left += found[name]
    return list(found.values())


def _refuse(node: Node) -> None:
    where = f"op {node.op} (node '{node.name}')"
    if node.op.startswith(_RANDOM):
        raise CompileError(
            where,
            "gives other values at each call, so there is no one right score",
            "export the model in inference mode (training=False), without dropout or sampling",
        )
    if node.op == "Timestamp":
        raise CompileError(
            where, "reads the clock, so there is no one right score", "make the time an input of the model"
        )
    if node.op in _CALLBACKS:
        raise CompileError(
            where,
            "calls Python code that is not part of the SavedModel",
            "write it in TensorFlow ops, or compute it before the request and make it an input",
        )
