"""Pass 4, fold: dense weights become constants, constant subgraphs are evaluated once.

Embedding tables (variables that a gather reads at ids which depend on the request) stay references; only rows
that are read at constant ids (position embeddings) become constants.
"""

from __future__ import annotations

import numpy as np

from bireme.compiler.check import as_function
from bireme.compiler.graph import Graph, Node, node_of, tf

__all__ = ["GATHERS", "fold", "table_reads"]

#: Ops that look rows up: op → (index of the table, index of the ids) among their inputs.
GATHERS = {"GatherV2": (0, 1), "Gather": (0, 1), "ResourceGather": (0, 1)}

#: Never evaluated ahead: they have state, or cannot be held as numpy.
_NOT_FOLDABLE = {"Placeholder", "VarHandleOp", "HashTableV2", "RandomUniform", "RandomStandardNormal", "NoOp"}


def fold(graph: Graph) -> Graph:
    """Freeze dense variables and evaluate whatever depends on constants only."""
    graph = graph.copy()
    _freeze_dense_variables(graph)
    _freeze_table_sizes(graph)
    constant = _constant_nodes(graph)
    # Only the constants that something non-constant (or an output) reads need a value.
    needed = [
        ref
        for node in graph.nodes.values()
        if node.name not in constant
        for ref in node.inputs
        if node_of(ref) in constant and graph.producer(ref).value is None
    ]
    needed += [
        r for r in graph.outputs.values() if node_of(r) in constant and graph.producer(r).value is None
    ]
    if needed:
        subgraph = graph.keep(graph.ancestors(needed))
        values = as_function(subgraph, {ref: ref for ref in dict.fromkeys(needed)})({})
        for ref, value in values.items():
            name = f"folded/{ref.replace(':', '_')}"
            graph.nodes[name] = Node(name, "Const", value=np.asarray(value))
            graph.redirect(ref, f"{name}:0")
    result = graph.keep(graph.ancestors(graph.outputs.values()))
    result.sort()
    return result


def table_reads(graph: Graph) -> dict[str, str]:
    """Gather node → placeholder of the variable it looks rows up in, where the ids depend on the request."""
    constant = _constant_nodes(graph)
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


def _freeze_dense_variables(graph: Graph) -> None:
    tables = set(table_reads(graph).values())
    for node in list(graph.nodes.values()):
        if node.op == "ReadVariableOp":
            name = node_of(node.inputs[0])
            if name in graph.captures and name not in tables:
                value = graph.captures[name].variable.numpy()
                graph.nodes[node.name] = Node(node.name, "Const", value=np.asarray(value))


def _freeze_table_sizes(graph: Graph) -> None:
    """How many keys a lookup table has: none is added while serving."""
    for node in list(graph.nodes.values()):
        if node.op == "LookupTableSizeV2" and node_of(node.inputs[0]) in graph.captures:
            handle = graph.captures[node_of(node.inputs[0])].handle
            size = tf.raw_ops.LookupTableSizeV2(table_handle=handle).numpy()
            graph.nodes[node.name] = Node(node.name, "Const", value=np.asarray(size))


def _constant_nodes(graph: Graph) -> set[str]:
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
