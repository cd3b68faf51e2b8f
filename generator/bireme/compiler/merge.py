"""Pass 6, merge: what a graph computes twice is computed once, and what changes nothing is left out.

One walk in topological order, so a node's inputs are already those that stay when the node is looked at:

* equal nodes (op, attributes, inputs) become the first of them: two lookups of the same ids in the same table
  then cross to the dense side as one block of columns, equal shape arithmetic is done once, and layers that
  share a weight share its constant (equal to the bit);
* casts to and fro without loss, transpositions that cancel out, concatenations of one tensor, and reshapes
  (chains of them, with squeezed and added dimensions) that end in the shape of a tensor they came from, go.

Ops with state or chance are never merged, unless all they do is read what does not change while serving.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.compiler.graph import Graph, Node, tf
from bireme.compiler.shapes import TensorSpec, tensor_specs

__all__ = ["merge"]

Key = tuple[Any, ...]

#: Stateful for TensorFlow, but they only read tables and variables, which are fixed while serving.
_READERS = {
    "LookupTableFindV2",
    "LookupTableSizeV2",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
}
#: Ops that give the elements of their first input in the same order.
_VIEWS = {"Reshape", "Squeeze", "ExpandDims"}
#: Casts after which the way back gives the same values.
_LOSSLESS = {
    ("int32", "int64"),
    ("int32", "float64"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float16", "float64"),
    ("bfloat16", "float64"),
    ("float32", "float64"),
    *(("bool", wider) for wider in ("int32", "int64", "float32", "float64")),
}
#: Bytes of a constant up to which its value is compared.
_LARGEST_CONSTANT = 64 << 20


def merge(graph: Graph) -> Graph:
    """Leave one of all equal nodes, and none that changes nothing.

    Args:
        graph: sorted; it is not changed.

    Returns:
        A graph with the same outputs, whose nodes keep their names.
    """
    graph = graph.copy()
    specs = tensor_specs(graph)
    forward: dict[str, str] = {}
    first: dict[Key, Node] = {}
    stateful: dict[str, bool] = {}
    for node in graph.nodes.values():
        node.inputs = [forward.get(ref, ref) for ref in node.inputs]
        same = _unchanged(graph, node, specs)
        if same is not None:
            forward[node.output] = same
            continue
        key = _key(graph, node, stateful)
        earlier = first.setdefault(key, node) if key is not None else node
        if earlier is not node:
            for index in range(_outputs(node)):
                forward[f"{node.name}:{index}"] = f"{earlier.name}:{index}"
    graph.outputs = {task: forward.get(ref, ref) for task, ref in graph.outputs.items()}
    return graph.keep(graph.ancestors(graph.outputs.values()))


def _key(graph: Graph, node: Node, stateful: dict[str, bool]) -> Key | None:
    """Equal for nodes that give equal outputs; None: there is no other like it."""
    if node.value is not None:
        return _constant_key(node.value)
    capture = graph.captures.get(node.name)
    if capture is not None:
        return ("capture", capture.kind, id(capture.handle))
    if not node.inputs:
        return None
    if node.op not in stateful:
        definition = _op_def(node.op)
        stateful[node.op] = node.op not in _READERS and (definition is None or definition.is_stateful)
    if stateful[node.op]:
        return None
    attributes = sorted(
        (name, value.SerializeToString(deterministic=True))
        for name, value in (node.attr or {}).items()
        if not name.startswith("_")  # hints
    )
    return (node.op, tuple(attributes), tuple(node.inputs))


def _constant_key(value: np.ndarray[Any, Any]) -> Key | None:
    """By value, to the bit: 0.0 and -0.0 differ, equal NaNs do not."""
    if value.nbytes > _LARGEST_CONSTANT:
        return None
    content: Any
    if value.dtype == object:
        content = tuple(value.reshape(-1).tolist())
    else:
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    return ("constant", str(value.dtype), value.shape, content)


def _op_def(op: str) -> Any:
    """TensorFlow's definition of an op; None for one that it does not know."""
    from tensorflow.python.framework import op_def_registry  # after graph.py has set TensorFlow's options

    return op_def_registry.get(op)


def _outputs(node: Node) -> int:
    """How many outputs a node has."""
    if node.value is not None or not node.inputs:
        return 1
    count = 0
    for arg in _op_def(node.op).output_arg:
        if arg.number_attr:
            count += node.attr[arg.number_attr].i
        elif arg.type_list_attr:
            count += len(node.attr[arg.type_list_attr].list.type)
        else:
            count += 1
    return count


def _unchanged(graph: Graph, node: Node, specs: Mapping[str, TensorSpec]) -> str | None:
    """The tensor that a node's only output equals, if it is known to equal an earlier one."""
    source = node.inputs[0] if node.inputs else ""
    if node.op in _VIEWS:
        while True:
            if _same_shape(specs.get(source), specs.get(node.output)):
                return source
            before = graph.producer(source)
            if before.op not in _VIEWS:
                return None
            source = before.inputs[0]
    if node.op == "Cast":
        return _cast_back(graph, node)
    if node.op == "Transpose":
        return _turned_back(graph, node)
    if node.op == "ConcatV2" and len(node.inputs) == 2:
        return source
    return None


def _same_shape(first: TensorSpec | None, second: TensorSpec | None) -> bool:
    """Whether tensors with as many elements must have the same shape: at most one dimension is open."""
    if first is None or second is None or first.shape is None or first.shape != second.shape:
        return False
    return first.shape.count(None) <= 1 and 0 not in first.shape


def _cast_back(graph: Graph, node: Node) -> str | None:
    """What a cast to its own type, or back to the type before a lossless cast, gives."""
    before, after = _types(node)
    if before == after:
        return node.inputs[0]
    made = graph.producer(node.inputs[0])
    if made.op != "Cast" or made.output != node.inputs[0]:
        return None
    return made.inputs[0] if _types(made) == (after, before) and (after, before) in _LOSSLESS else None


def _types(cast: Node) -> tuple[str, str]:
    return tf.as_dtype(cast.attr["SrcT"].type).name, tf.as_dtype(cast.attr["DstT"].type).name


def _turned_back(graph: Graph, node: Node) -> str | None:
    """What a transposition by nothing, or one that undoes another, gives."""
    order = graph.constant(node.inputs[1])
    if order is None:
        return None
    source, order = node.inputs[0], order.reshape(-1)
    made = graph.producer(source)
    inner = graph.constant(made.inputs[1]) if made.op == "Transpose" else None
    if inner is not None and _is_identity(inner.reshape(-1)[order]):
        return made.inputs[0]
    return source if _is_identity(order) else None


def _is_identity(order: np.ndarray[Any, Any]) -> bool:
    return bool(np.array_equal(order, np.arange(order.size)))
