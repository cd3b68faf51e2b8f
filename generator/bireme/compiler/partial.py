"""Loads of a SavedModel only what one signature needs: no optimizer slots, no second copy of a table.

Keras 3's `model.export` stores every variable twice, Keras 2's `model.save` stores Adam's two moments of each
table, and an archive may hold other signatures' tables. `tf.saved_model.load` brings all of it into memory.
Here it is given a folder with links to the same variables and assets, and a `saved_model.pb` whose object
graph is pruned; what is not in that graph it does not read from the checkpoint.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bireme.compiler.graph import tf

__all__ = ["load_signature", "prune"]


def load_signature(folder: Path, signature: str) -> Any:
    """The loaded object, whose `signatures` has this one, if the SavedModel has it.

    Where the object graph cannot be pruned (TensorFlow 1 SavedModels have none), everything is loaded: that
    only costs memory, and whatever is wrong with the model is then said by TensorFlow about the right folder.

    Args:
        folder: the SavedModel folder.
        signature: signature key.
    """
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as pruned:
        from tensorflow.core.protobuf import saved_model_pb2

        model = saved_model_pb2.SavedModel()
        model.ParseFromString((folder / "saved_model.pb").read_bytes())
        (meta,) = model.meta_graphs
        if prune(meta.object_graph_def, meta.graph_def.library, signature):
            for path in folder.resolve().iterdir():
                if path.name != "saved_model.pb":
                    (Path(pruned) / path.name).symlink_to(path)
            (Path(pruned) / "saved_model.pb").write_bytes(model.SerializeToString())
            del model, meta
            return tf.saved_model.load(pruned)
    return tf.saved_model.load(str(folder))


def prune(graph: Any, library: Any, signature: str) -> bool:
    """Keep, in place, the nodes and functions that a signature needs, and the way to them from the root.

    Args:
        graph: a SavedObjectGraph; node 0 is the root.
        library: the FunctionDefLibrary that its functions are in.
        signature: signature key.

    Returns:
        False, with nothing changed, if the graph has no such signature, or no way to something with a state:
        the checkpoint knows things by the names on the way to them.
    """
    ways = _ways(graph)
    first = _child(graph, _child(graph, 0, "signatures"), signature)
    if first is None or first not in ways:
        return False
    needed = _needed(graph, first)
    stateful = [i for i in needed if graph.nodes[i].WhichOneof("kind") in ("variable", "resource")]
    if 0 in needed or any(i not in ways for i in stateful):
        return False
    kept = set(needed)
    for node in needed:
        while node in ways and ways[node] not in kept:
            node = ways[node]
            kept.add(node)
    _keep_functions(graph, library, needed)
    _keep_nodes(graph, kept, needed)
    return True


def _child(graph: Any, node: int | None, name: str) -> int | None:
    children = graph.nodes[node].children if node is not None and graph.nodes else ()
    return next((child.node_id for child in children if child.local_name == name), None)


def _ways(graph: Any) -> dict[int, int]:
    """Node → the node before it on a shortest way from the root through plain objects; the root → itself."""
    before, pending = {0: 0}, deque([0])
    while pending and graph.nodes:
        node = pending.popleft()
        for child in graph.nodes[node].children:
            if child.node_id not in before:
                before[child.node_id] = node
                if graph.nodes[child.node_id].WhichOneof("kind") in ("user_object", "resource", None):
                    pending.append(child.node_id)
    return before


def _needed(graph: Any, first: int) -> set[int]:
    """A node with all its children, what they depend on and what their functions capture."""
    needed: set[int] = set()
    pending = [first]
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            node = graph.nodes[index]
            pending.extend(reference.node_id for reference in (*node.children, *node.dependencies))
            for saver in node.saveable_objects.values():
                pending.extend((saver.save_function, saver.restore_function))
            for function in _functions(node):
                pending.extend(graph.concrete_functions[function].bound_inputs)
    return needed


def _functions(node: Any) -> list[str]:
    """The concrete functions that a node of the object graph stands for."""
    if node.HasField("bare_concrete_function"):
        return [node.bare_concrete_function.concrete_function_name]
    if node.HasField("captured_tensor"):
        return [node.captured_tensor.concrete_function]
    return list(node.function.concrete_functions)


def _keep_functions(graph: Any, library: Any, needed: Iterable[int]) -> None:
    """Leave the needed nodes' functions, and what those call, in graph and library."""
    bodies = {function.signature.name: function for function in library.function}
    wanted = {name for index in needed for name in _functions(graph.nodes[index])}
    called, pending = set(), [name for name in wanted if name in bodies]
    while pending:
        name = pending.pop()
        if name not in called:
            called.add(name)
            pending.extend(other for other in _calls(bodies[name]) if other in bodies)
    for name in set(graph.concrete_functions) - wanted:
        del graph.concrete_functions[name]
    functions = [function for name, function in bodies.items() if name in called]
    gradients = [g for g in library.gradient if g.function_name in called and g.gradient_func in called]
    del library.function[:], library.gradient[:]
    library.function.extend(functions)
    library.gradient.extend(gradients)


def _calls(function: Any) -> Iterable[str]:
    for node in function.node_def:
        yield node.op
        for value in node.attr.values():
            yield value.func.name
            yield from (other.name for other in value.list.func)


def _keep_nodes(graph: Any, kept: set[int], needed: set[int]) -> None:
    """Drop the other nodes and count anew; what only leads to a needed node is a plain object."""
    number = {old: new for new, old in enumerate(sorted(kept))}
    nodes = []
    for old in sorted(kept):
        node = type(graph.nodes[old])()
        node.CopyFrom(graph.nodes[old])
        if old not in needed:
            del node.dependencies[:]
        del node.children[:], node.slot_variables[:]
        node.children.extend(child for child in graph.nodes[old].children if child.node_id in kept)
        for reference in (*node.children, *node.dependencies):
            reference.node_id = number[reference.node_id]
        for saver in node.saveable_objects.values():
            saver.save_function = number[saver.save_function]
            saver.restore_function = number[saver.restore_function]
        nodes.append(node)
    for function in graph.concrete_functions.values():
        function.bound_inputs[:] = [number[index] for index in function.bound_inputs]
    del graph.nodes[:]
    graph.nodes.extend(nodes)
