"""A small, mutable view of an inlined TensorFlow graph: what the passes work on.

Tensors are written `node:index`, as in a GraphDef, always with the index. Control edges are gone: a serving
graph is pure. Constants hold numpy values; variables and lookup tables stay references (`Capture`), so that
an embedding table never enters a protobuf.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Before TensorFlow is imported: no start-up chatter, and no oneDNN, whose sums depend on the machine.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import tensorflow as tf

# Every function here runs a few times at most: optimising it first costs more, and the original model, too,
# is to be run as it is.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

__all__ = ["Capture", "Graph", "Node", "node_of", "read_graph_def", "tensor", "tf"]


def tensor(name: str) -> str:
    """`node` or `node:i` → `node:i`."""
    return name if ":" in name else f"{name}:0"


def node_of(ref: str) -> str:
    """The node that makes tensor `ref`."""
    return ref.rsplit(":", 1)[0]


@dataclass
class Node:
    """One operation.

    Args:
        name: unique in the graph.
        op: TensorFlow's op type.
        inputs: tensors, in order.
        attr: the NodeDef's attribute map (protobuf), shared, never changed in place.
        value: the numpy value of a Const.
    """

    name: str
    op: str
    inputs: list[str] = field(default_factory=list)
    attr: Any = None
    value: np.ndarray[Any, Any] | None = None

    @property
    def output(self) -> str:
        """Its first output."""
        return f"{self.name}:0"


@dataclass(frozen=True)
class Capture:
    """Something outside the graph that a placeholder stands for.

    Args:
        kind: "variable" or "lookup".
        handle: the eager resource tensor.
        variable: the tf.Variable, for kind "variable".
    """

    kind: str
    handle: Any
    variable: Any = None


@dataclass
class Graph:
    """An inlined graph.

    Args:
        nodes: name → node, in an order where every node follows its inputs.
        features: signature input → placeholder node.
        outputs: task → tensor.
        captures: placeholder node → what it stands for.
        library: the functions (FunctionDefLibrary) that its control flow calls; None: there is none.
    """

    nodes: dict[str, Node]
    features: dict[str, str]
    outputs: dict[str, str]
    captures: dict[str, Capture]
    library: Any = None

    def producer(self, ref: str) -> Node:
        """The node behind a tensor."""
        return self.nodes[node_of(ref)]

    def constant(self, ref: str) -> np.ndarray[Any, Any] | None:
        """Value of a tensor if it is a constant."""
        return self.producer(ref).value

    def consumers(self) -> dict[str, list[Node]]:
        """Tensor → nodes that read it."""
        result: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            for ref in node.inputs:
                result.setdefault(ref, []).append(node)
        return result

    def ancestors(self, refs: Iterable[str]) -> set[str]:
        """Names of all nodes that `refs` need."""
        seen: set[str] = set()
        stack = [node_of(ref) for ref in refs]
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack.extend(node_of(ref) for ref in self.nodes[name].inputs)
        return seen

    def keep(self, names: set[str]) -> Graph:
        """The same graph with only these nodes (inputs and captures are dropped with theirs)."""
        return Graph(
            nodes={name: node for name, node in self.nodes.items() if name in names},
            features={feature: name for feature, name in self.features.items() if name in names},
            outputs=dict(self.outputs),
            captures={name: capture for name, capture in self.captures.items() if name in names},
            library=self.library,
        )

    def copy(self) -> Graph:
        """A graph whose nodes can be changed without touching this one."""
        nodes = {n.name: Node(n.name, n.op, list(n.inputs), n.attr, n.value) for n in self.nodes.values()}
        return Graph(nodes, dict(self.features), dict(self.outputs), dict(self.captures), self.library)

    def redirect(self, old: str, new: str) -> None:
        """Make every reader of tensor `old` read `new`."""
        for node in self.nodes.values():
            node.inputs = [new if ref == old else ref for ref in node.inputs]
        self.outputs = {task: new if ref == old else ref for task, ref in self.outputs.items()}

    def sort(self) -> None:
        """Restore the order after rewriting: every node behind its inputs."""
        done: dict[str, Node] = {}
        for root in list(self.nodes):
            stack = [root]
            while stack:
                name = stack[-1]
                missing = [node_of(r) for r in self.nodes[name].inputs if node_of(r) not in done]
                if missing:
                    stack.extend(missing)
                else:
                    done[name] = self.nodes[name]
                    stack.pop()
        self.nodes = done

    def to_graph_def(self) -> Any:
        """As a tf.compat.v1.GraphDef; captures are resource placeholders."""
        graph_def = tf.compat.v1.GraphDef()
        graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
        if self.library is not None:
            graph_def.library.CopyFrom(self.library)
        for node in self.nodes.values():
            node_def = graph_def.node.add(name=node.name, op=node.op)
            node_def.input.extend(ref.removesuffix(":0") for ref in node.inputs)
            if node.value is not None:
                node_def.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(node.value))
                node_def.attr["dtype"].type = node_def.attr["value"].tensor.dtype
            else:
                # Attributes with an underscore are hints, some about nodes that are gone.
                for key in [key for key in node.attr or {} if not key.startswith("_")]:
                    node_def.attr[key].CopyFrom(node.attr[key])
        return graph_def


def read_graph_def(graph_def: Any) -> Iterator[Node]:
    """Nodes of a GraphDef without control edges, constants decoded."""
    for node_def in graph_def.node:
        inputs = [tensor(name) for name in node_def.input if not name.startswith("^")]
        value = tf.make_ndarray(node_def.attr["value"].tensor) if node_def.op == "Const" else None
        yield Node(node_def.name, node_def.op, inputs, node_def.attr, value)
