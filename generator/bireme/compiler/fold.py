"""Pass 4, fold: dense weights become constants, constant subgraphs are evaluated once.

Embedding tables (variables that a gather reads at ids which depend on the request) stay references; only rows
that are read at constant ids (position embeddings) become constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.compiler.check import as_function
from bireme.compiler.cut.reads import constant_nodes, table_reads
from bireme.compiler.graph import Graph, Node, node_of, tf
from bireme.errors import CompileError

__all__ = ["fold"]

#: Bytes of a table that may be copied into the dense network as a weight.
_LARGEST_WEIGHT = 256 << 20


def fold(graph: Graph) -> Graph:
    """Freeze dense variables and evaluate whatever depends on constants only."""
    graph = graph.copy()
    _freeze_dense_variables(graph)
    _freeze_table_sizes(graph)
    constant = constant_nodes(graph)
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


def _freeze_dense_variables(graph: Graph) -> None:
    reads = table_reads(graph)
    tables, consumers = set(reads.values()), graph.consumers()
    for node in list(graph.nodes.values()):
        if node.op != "ReadVariableOp" or node_of(node.inputs[0]) not in graph.captures:
            continue
        variable = graph.captures[node_of(node.inputs[0])].variable
        if node_of(node.inputs[0]) not in tables:
            graph.nodes[node.name] = Node(node.name, "Const", value=np.asarray(variable.numpy()))
            continue
        # A table that a layer multiplies with, too: the layer gets a copy of its own.
        layers = [reader for reader in consumers.get(node.output, []) if reader.name not in reads]
        if layers:
            weight = Node(f"{node.name}/weight", "Const", value=np.asarray(_small_enough(variable).numpy()))
            graph.nodes = {weight.name: weight, **graph.nodes}
        for reader in layers:
            reader.inputs = [weight.output if ref == node.output else ref for ref in reader.inputs]


def _freeze_table_sizes(graph: Graph) -> None:
    """How many keys a lookup table has: none is added while serving."""
    for node in list(graph.nodes.values()):
        if node.op == "LookupTableSizeV2" and node_of(node.inputs[0]) in graph.captures:
            handle = graph.captures[node_of(node.inputs[0])].handle
            size = tf.raw_ops.LookupTableSizeV2(table_handle=handle).numpy()
            graph.nodes[node.name] = Node(node.name, "Const", value=np.asarray(size))


def _small_enough(variable: Any) -> Any:
    """The variable, unless it is too large to be a weight beside its life as a table.

    Raises:
        CompileError: naming the variable.
    """
    if variable.dtype.size * int(np.prod(variable.shape)) > _LARGEST_WEIGHT:
        raise CompileError(
            f"embedding table '{variable.name.removesuffix(':0')}'",
            "is also used as a whole, by a layer, and is too large for that",
            "leave that output out of `outputs` in the spec",
        )
    return variable
