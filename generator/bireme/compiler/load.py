"""Pass 1, load: SavedModel → one inlined graph whose variables and lookup tables are still references."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bireme.compiler.composites import find_composites
from bireme.compiler.graph import Capture, Graph, Node, node_of, read_graph_def, tensor, tf
from bireme.compiler.partial import load_signature
from bireme.compiler.reference_variables import adopt_reference_variables
from bireme.compiler.session_tables import bind_session_tables
from bireme.errors import CompileError
from bireme.requests import pad_rows
from bireme_runtime.plan import Feature

__all__ = ["SavedModel", "fill_unused", "load"]

_PARSERS = {"DecodeProtoV2", "ParseExample", "ParseExampleV2", "ParseSingleExample"}

_EXPORT = "name a folder that `model.export(folder)` or `tf.saved_model.save` wrote"


class SavedModel:
    """A loaded SavedModel signature: the reference that every pass is checked against.

    Args:
        path: the SavedModel folder.
        signature: signature key.
        padding: sparse or ragged feature → value of absent elements, from the spec.

    Raises:
        CompileError: not a SavedModel, damaged, or without that signature.
    """

    def __init__(
        self, path: Path, signature: str = "serving_default", padding: Mapping[str, Any] | None = None
    ) -> None:
        if not path.exists():
            raise CompileError(str(path), "does not exist", "name a SavedModel folder")
        if path.is_file():
            raise CompileError(str(path), "is a file, not a SavedModel folder", _EXPORT)
        if not (path / "saved_model.pb").is_file():
            raise CompileError(
                str(path),
                "is not a SavedModel (no saved_model.pb in it)",
                _EXPORT,
            )
        for noisy in ("tensorflow", "absl"):  # absl: names that are no Python identifiers, once a use
            logging.getLogger(noisy).setLevel(logging.ERROR)
        try:
            self._root = load_signature(path, signature)
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
        # The public `structured_input_signature` holds names bent into Python identifiers; these are the
        # names that the signature has in the file, in the order of the function's flat inputs.
        placeholders = dict(zip(self.function._arg_keywords, self.function.inputs, strict=False))
        #: signature input → its placeholder (a symbolic tensor), row-wise: dim 0 is the row
        self.inputs: dict[str, Any] = dict(sorted(placeholders.items()))
        self.outputs: list[str] = sorted(self.function.structured_outputs)
        #: sparse or ragged feature → the inputs that it is made of
        self.composites = find_composites(self.inputs, self.graph_def, padding or {})
        parts = {part for composite in self.composites.values() for part in composite.parts}
        rows = {c.name: tf.TensorSpec([None, None], c.dtype) for c in self.composites.values()}
        #: feature of a request → shape and dtype of its rows
        self.features: dict[str, Any] = dict(
            sorted({**{n: x for n, x in self.inputs.items() if n not in parts}, **rows}.items())
        )

    @cached_property
    def unservable(self) -> dict[str, str]:
        """Outputs that can be no score by their type or shape → why, as a part of a sentence."""
        found = {}
        for name, output in sorted(self.function.structured_outputs.items()):
            rest = output.shape[1:].as_list() if output.shape.rank else []
            if output.dtype != tf.float32:
                found[name] = f"is {output.dtype.name}; this version serves float32 scores"
            elif any(size not in (None, 1) for size in rest):
                found[name] = f"has {rest} values a row; a ranking score is a single number"
        return found

    @cached_property
    def graph_def(self) -> Any:
        """The signature as one GraphDef, calls inlined but no loops; variables are captured handles."""
        # The collections of a TensorFlow 1 model name initialisers that are not part of the signature.
        self.function.graph.clear_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
        # TensorFlow's public freezing API would fold the variables into the protobuf (2 GB limit); this is
        # the inliner underneath it, which leaves them as captured handles.
        from tensorflow.python.framework import convert_to_constants

        # It takes branches and loops apart unless told otherwise, and does not know of Case.
        convert_to_constants._CONTROL_FLOW_OPS.update(("Case", "StatelessCase"))
        return convert_to_constants._run_inline_graph_optimization(self.function, False, True)

    def predict(self, rows: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run the original model on rows; keys are signature inputs and outputs.

        Raises:
            CompileError: the model refuses them.
        """
        feeds = {name: tf.constant(rows[name], dtype=spec.dtype) for name, spec in self.inputs.items()}
        try:
            return {name: value.numpy() for name, value in self.function(**feeds).items()}
        except tf.errors.OpError as error:
            reason = " ".join(str(error.message).split())
            raise CompileError(
                str(self.path), f"fails on a sample request: {reason}", "correct `samples` in the spec"
            ) from error


def fill_unused(
    model: SavedModel, rows: dict[str, np.ndarray[Any, Any]], features: Sequence[Feature] = ()
) -> dict[str, np.ndarray[Any, Any]]:
    """Rows for the whole signature: inputs that no served output needs get neutral values.

    Args:
        model: the loaded SavedModel.
        rows: feature → [N] or [N, L], for the features that are served.
        features: their sequences are padded where the signature itself has a fixed length.

    Returns:
        Signature input → values in the shape that the signature asks for ([N, 1] for some single values,
        [N, L, 1] for some sequences); a sparse or ragged feature as its parts.
    """
    count = len(next(iter(rows.values())))
    shapes = {feature.name: model.features[feature.name].shape for feature in features}
    fixed = [feature for feature in features if shapes[feature.name].rank == 2 and shapes[feature.name][1]]
    rows = {**rows, **pad_rows(fixed, rows)}
    filled = {}
    for name, spec in model.features.items():
        text = spec.dtype == tf.string
        if name not in rows:
            shape = (count, *(size or 1 for size in (spec.shape[1:] if spec.shape.rank else ())))
            kind = object if text else spec.dtype.as_numpy_dtype
            filled[name] = np.full(shape, b"" if text else 0, dtype=kind)
        else:
            ones = (spec.shape.rank or 0) - rows[name].ndim
            filled[name] = rows[name].reshape(*rows[name].shape, *(1 for _ in range(ones)))
    dtypes = {name: spec.dtype.as_numpy_dtype for name, spec in model.inputs.items()}
    for composite in model.composites.values():
        filled |= composite.split(filled.pop(composite.name), dtypes)
    return filled


def require_scores(model: SavedModel, outputs: dict[str, str]) -> None:
    """Refuse outputs that can be no score, before anything is done with them.

    Args:
        model: the loaded SavedModel.
        outputs: as in `load`.

    Raises:
        CompileError: an output is not in the signature, is not float32, or has several values a row.
    """
    for name in _tasks(model, outputs).values():
        if name in model.unservable:
            raise CompileError(f"output '{name}'", model.unservable[name], _others(model))


def load(model: SavedModel, outputs: dict[str, str], lengths: Mapping[str, int] | None = None) -> Graph:
    """Inline the signature into one graph.

    Args:
        model: the loaded SavedModel.
        outputs: task → signature output; empty: all, under their own names.
        lengths: sequence feature → the length that it will always have.

    Raises:
        CompileError: an output is not in the signature.
    """
    tasks = _tasks(model, outputs)
    nodes = {node.name: node for node in read_graph_def(model.graph_def)}
    placeholders = {name: node_of(value.name) for name, value in model.inputs.items()}
    for name in set(placeholders.values()) & set(nodes):
        # A request gives the value, so a TensorFlow 1 placeholder's default must not count.
        if nodes[name].op == "PlaceholderWithDefault":
            nodes[name] = Node(name, "Placeholder", [], nodes[name].attr)
    graph = Graph(
        nodes,
        features={name: node for name, node in placeholders.items() if node in nodes},
        outputs={task: tensor(_output_node(model.function, name)) for task, name in tasks.items()},
        captures={},
        library=model.graph_def.library,
    )
    _bind_captures(graph, model.function)
    adopt_reference_variables(graph, model.function)
    bind_session_tables(graph)
    for name, length in (lengths or {}).items():
        _fix_length(graph, name, length)
    _refuse_examples(graph)
    graph.sort()
    return graph


def _fix_length(graph: Graph, feature: str, length: int) -> None:
    """Tell the graph that a sequence feature always has this length."""
    if feature in graph.features:
        node = graph.nodes[graph.features[feature]]
        shape = tf.compat.v1.AttrValue(shape=tf.TensorShape([None, length]).as_proto())
        graph.nodes[node.name] = Node(node.name, node.op, [], {"dtype": node.attr["dtype"], "shape": shape})


def _refuse_examples(graph: Graph) -> None:
    """Refuse a signature that takes its features packed into protobufs.

    Raises:
        CompileError: naming the input that holds them.
    """
    for name in sorted(graph.ancestors(graph.outputs.values())):
        node = graph.nodes[name]
        if node.op in _PARSERS:
            packed = graph.ancestors(node.inputs[:1])
            inputs = [feature for feature, placeholder in graph.features.items() if placeholder in packed]
            raise CompileError(
                f"input '{', '.join(inputs)}'",
                f"takes serialized tf.Example protos (op {node.op}, node '{name}'), not features",
                "export a signature whose inputs are the features themselves, and name it under `signature`",
            )


def _tasks(model: SavedModel, outputs: dict[str, str]) -> dict[str, str]:
    """Task → output of the signature, which has it."""
    tasks = outputs or {name: name for name in model.outputs}
    for task, name in tasks.items():
        if name not in model.outputs:
            raise CompileError(
                f"output '{name}' (task '{task}')",
                f"is not in the signature; it has: {', '.join(model.outputs)}",
                _suggest(name, model.outputs),
            )
    return tasks


def _others(model: SavedModel) -> str:
    """What to do about an output that cannot be served: name those that can, as the spec wants them."""
    others = ", ".join(f"{name}: {name}" for name in model.outputs if name not in model.unservable)
    return (
        f"serve the others only: `outputs: {{{others}}}` in the spec" if others else "add a head that can be"
    )


def _suggest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{near[0]}'?" if near else "correct `outputs` in the spec"


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
