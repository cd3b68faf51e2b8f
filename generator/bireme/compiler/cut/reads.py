"""Which nodes depend on constants only, and which look rows up in embedding tables."""

from __future__ import annotations

from bireme.compiler.graph import Graph, node_of

__all__ = ["GATHERS", "constant_nodes", "table_reads"]

#: Ops that look rows up: op → (index of the table, index of the ids) among their inputs.
GATHERS = {"GatherV2": (0, 1), "Gather": (0, 1), "ResourceGather": (0, 1)}

#: Never evaluated ahead: they have state, or cannot be held as numpy.
_NOT_FOLDABLE = {"Placeholder", "VarHandleOp", "HashTableV2", "RandomUniform", "RandomStandardNormal", "NoOp"}


def table_reads(graph: Graph) -> dict[str, str]:
    """Gather node → placeholder of the variable it looks rows up in, where the ids depend on the request."""
    constant = constant_nodes(graph)
    reads = {}
    for node in graph.nodes.values():
        if node.op in GATHERS:
            table, ids = (node.inputs[index] for index in GATHERS[node.op])
            variable = _variable_behind(graph, table)
            if variable is not None and node_of(ids) not in constant:
                reads[node.name] = variable
    return reads


def _variable_behind(graph: Graph, ref: str) -> str | None:
    node = graph.producer(ref)
    if node.op == "ReadVariableOp":
        node = graph.producer(node.inputs[0])
    capture = graph.captures.get(node.name)
    return node.name if capture is not None and capture.kind == "variable" else None


def constant_nodes(graph: Graph) -> set[str]:
    """Nodes that depend on constants alone."""
    constant: set[str] = set()
    for node in graph.nodes.values():
        needs = list(node.inputs)
        if node.op in GATHERS and _variable_behind(graph, needs[GATHERS[node.op][0]]) is not None:
            needs.pop(GATHERS[node.op][0])  # rows at constant ids: what is read does not change either
        foldable = node.op not in _NOT_FOLDABLE and all(node_of(ref) in constant for ref in needs)
        if node.op == "Const" or (node.inputs and foldable):
            constant.add(node.name)
    return constant
