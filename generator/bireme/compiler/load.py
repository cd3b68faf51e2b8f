"""Pass 1, load: SavedModel → one inlined graph whose variables and lookup tables are still references."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.graph import Capture, Graph, Node, read_graph_def, tensor, tf
from bireme.errors import CompileError

__all__ = ["SavedModel", "fill_unused", "load"]


class SavedModel:
    """A loaded SavedModel signature: the reference that every pass is checked against.

    Args:
        path: the SavedModel folder.
        signature: signature key.

    Raises:
        CompileError: not a SavedModel, damaged, or without that signature.
    """

    def __init__(self, path: Path, signature: str = "serving_default") -> None:
        if not (path / "saved_model.pb").is_file():
            raise CompileError(
                str(path),
                "is not a SavedModel (no saved_model.pb in it)",
                "export one with `model.export(folder)` or `tf.saved_model.save`",
            )
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        try:
            self._root = tf.saved_model.load(str(path))
        except Exception as error:  # TensorFlow raises a dozen kinds for a damaged folder
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise CompileError(str(path), f"cannot be loaded: {reason}", "export the model again") from error
        if signature not in self._root.signatures:
            known = ", ".join(sorted(self._root.signatures)) or "none"
            raise CompileError(
                str(path), f"has no signature '{signature}'; it has: {known}", "set `signature` in the spec"
            )
        self.path = path
        self.function = self._root.signatures[signature]
        #: signature input → tf.TensorSpec, row-wise: dim 0 is the row (one user–candidate pair)
        self.inputs: dict[str, Any] = dict(sorted(self.function.structured_input_signature[1].items()))
        self.outputs: list[str] = sorted(self.function.structured_outputs)

    def predict(self, rows: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run the original model on rows; keys are signature inputs and outputs."""
        feeds = {name: tf.constant(rows[name], dtype=spec.dtype) for name, spec in self.inputs.items()}
        return {name: value.numpy() for name, value in self.function(**feeds).items()}


def fill_unused(model: SavedModel, rows: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Rows for the whole signature: inputs that no served output needs get neutral values.

    Args:
        model: the loaded SavedModel.
        rows: feature → [N] or [N, L], for the features that are served.

    Returns:
        Signature input → values in the shape that the signature asks for ([N, 1] for some single values).
    """
    count = len(next(iter(rows.values())))
    filled = {}
    for name, spec in model.inputs.items():
        text = spec.dtype == tf.string
        if name not in rows:
            shape = (count, *(size or 1 for size in (spec.shape[1:] if spec.shape.rank else ())))
            kind = object if text else spec.dtype.as_numpy_dtype
            filled[name] = np.full(shape, b"" if text else 0, dtype=kind)
        elif spec.shape.rank == 2 and rows[name].ndim == 1:
            filled[name] = rows[name][:, None]
        else:
            filled[name] = rows[name]
    return filled


def load(model: SavedModel, outputs: dict[str, str]) -> Graph:
    """Inline the signature into one graph.

    Args:
        model: the loaded SavedModel.
        outputs: task → signature output; empty: all, under their own names.

    Raises:
        CompileError: an output is not in the signature.
    """
    tasks = outputs or {name: name for name in model.outputs}
    for task, name in tasks.items():
        if name not in model.outputs:
            raise CompileError(
                f"output '{name}' (task '{task}')",
                f"is not in the signature; it has: {', '.join(model.outputs)}",
                "correct `outputs` in the spec",
            )
    # TensorFlow's public freezing API would fold the variables into the protobuf (2 GB limit); this is the
    # inliner underneath it, which leaves them as captured handles.
    from tensorflow.python.framework import convert_to_constants

    graph_def = convert_to_constants._run_inline_graph_optimization(model.function, True, True)
    nodes = {node.name: node for node in read_graph_def(graph_def)}
    features = {spec.name.split(":")[0]: name for name, spec in model.inputs.items()}
    placeholders = {name: node for node, name in features.items()}
    graph = Graph(
        nodes,
        features={name: _placeholder(nodes, placeholders[name], name) for name in model.inputs},
        outputs={task: tensor(_output_node(model.function, name)) for task, name in tasks.items()},
        captures={},
    )
    _bind_captures(graph, model.function)
    graph.sort()
    return graph


def _placeholder(nodes: dict[str, Node], node: str, feature: str) -> str:
    if node not in nodes:
        raise CompileError(
            f"input '{feature}'", "has no placeholder in the inlined graph", "export the model again"
        )
    return node


def _output_node(function: Any, name: str) -> str:
    """The flat output tensor that `structured_outputs[name]` is; both are ordered by key."""
    return str(function.outputs[sorted(function.structured_outputs).index(name)].name)


def _bind_captures(graph: Graph, function: Any) -> None:
    """Captured constants become Const nodes; variables and lookup tables become references."""
    variables = {id(variable.handle): variable for variable in function.graph.variables}
    for external, internal in function.graph.captures:
        name = internal.name.split(":")[0]
        if name not in graph.nodes:
            continue
        if external.dtype != tf.resource:
            value = external.numpy()
            text = isinstance(value, bytes)
            graph.nodes[name] = Node(name, "Const", value=np.asarray(value, dtype=object if text else None))
        elif id(external) in variables:
            graph.captures[name] = Capture("variable", external, variables[id(external)])
        else:
            graph.captures[name] = Capture("lookup", external)
