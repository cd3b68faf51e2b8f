"""A piece of the original graph as a file for another engine on the CPU, and whether it keeps rows apart."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from bireme.compiler.check import Arrays, as_function
from bireme.compiler.cut.fuzz import ROWS, made_up_rows
from bireme.compiler.dense import runner, to_onnx
from bireme.compiler.graph import Capture, Graph, Node, node_of, tf
from bireme.compiler.shapes import TensorSpec
from bireme.compiler.unroll import BRANCHES, CONTROL_FLOW, LOOPS
from bireme.errors import CompileError

__all__ = ["as_onnx", "as_tensorflow", "check_rows", "tensorflow_only"]

#: A GraphDef holds at most 2 GB.
_MOST_BYTES = 1_500_000_000


def tensorflow_only(piece: Graph, specs: Mapping[str, TensorSpec]) -> str:
    """The op for which ONNX Runtime cannot run a piece, as "op (node 'name')"; "" if there is none."""
    for node in piece.nodes.values():
        refs = [*node.inputs, node.output]
        if node.op in CONTROL_FLOW:
            return f"{node.op} (node '{node.name}')"
        if node.name in piece.captures or any(
            ref in specs and specs[ref].dtype in ("string", "resource", "variant") for ref in refs
        ):
            users = [n for n in piece.nodes.values() if node.output in n.inputs]
            shown = users[0] if node.op == "Placeholder" and users else node
            return f"{shown.op} (node '{shown.name}')"
    return ""


def as_onnx(piece: Graph, rows_of: Mapping[str, int]) -> tuple[onnx.ModelProto | None, str]:
    """A numeric piece as ONNX, if it then gives what TensorFlow gives; else None, and why.

    Integers have to be equal; floats may differ by their rounding. `rows_of`: see `check_rows`.
    """
    try:
        model = to_onnx(piece)
        run = runner(model)
        for rows in made_up_rows(piece, rows_of):
            try:
                expected = as_function(piece)(rows)
            except tf.errors.OpError:
                continue
            try:
                found = run(rows)
            except Exception:  # ONNX Runtime's kinds have no common base but this
                return None, "ONNX Runtime fails where TensorFlow does not"
            for name, wanted in expected.items():
                if wanted.shape != found[name].shape:
                    return None, f"ONNX Runtime gives {name} another shape"
                close = np.allclose(wanted, found[name], rtol=1e-6, atol=1e-6, equal_nan=True)
                if not (close if wanted.dtype.kind == "f" else np.array_equal(wanted, found[name])):
                    return None, "ONNX Runtime gives other values"
    except CompileError as error:
        return None, error.message
    return model, ""


def as_tensorflow(piece: Graph) -> tuple[Any, tuple[tuple[str, str, str], ...]]:
    """A piece as a GraphDef that needs nothing beside it.

    Returns:
        The GraphDef, and its lookup tables and variables: (placeholder, constant of keys, constant of
        values); a variable has no keys ("").

    Raises:
        CompileError: it holds a table that no file can hold.
    """
    graph = piece.copy()
    tables = []
    for name, capture in piece.captures.items():
        if capture.kind == "variable":
            _check_size(capture.variable)
            if _frozen(graph, name):
                continue
            graph.nodes[f"{name}/values"] = Node(f"{name}/values", "Const", value=capture.variable.numpy())
            tables.append((name, "", f"{name}/values"))
            continue
        keys, values = _entries(capture)
        graph.nodes[f"{name}/keys"] = Node(f"{name}/keys", "Const", value=keys)
        graph.nodes[f"{name}/values"] = Node(f"{name}/values", "Const", value=values)
        tables.append((name, f"{name}/keys", f"{name}/values"))
    return graph.to_graph_def(), tuple(tables)


def _entries(capture: Capture) -> tuple[Any, Any]:
    """Keys and values of a lookup table; its types are asked for, as its reader may be inside a loop."""
    kinds = (tf.string, tf.int64, tf.int32, tf.float32, tf.float64, tf.bool)
    for key, value in itertools.product(kinds, kinds):
        none, default = tf.zeros([0], key), tf.zeros([], value)
        try:  # an export with other types would end the process
            tf.raw_ops.LookupTableFindV2(table_handle=capture.handle, keys=none, default_value=default)
        except tf.errors.InvalidArgumentError:
            continue
        found = tf.raw_ops.LookupTableExportV2(table_handle=capture.handle, Tkeys=key, Tvalues=value)
        return found[0].numpy(), found[1].numpy()
    raise CompileError(
        "a lookup table", "holds keys or values of an unusual type", "look strings or integers up in it"
    )


def _check_size(variable: Any) -> None:
    if variable.dtype.size * int(np.prod(variable.shape)) > _MOST_BYTES:
        raise CompileError(
            f"embedding table '{variable.name.removesuffix(':0')}'",
            "is too large for the TensorFlow fallback that its lookup needs",
            "look its rows up by ids of a feature, a hash or a vocabulary, and pool them by sum or mean",
        )


def _frozen(graph: Graph, name: str) -> bool:
    """Make reads of a variable reads of a constant; False, with nothing done, where a loop reads it."""
    readers = [n for n in graph.nodes.values() if any(node_of(ref) == name for ref in n.inputs)]
    if any(node.op not in ("ReadVariableOp", "ResourceGather") for node in readers):
        return False
    graph.nodes[name] = Node(name, "Const", value=graph.captures.pop(name).variable.numpy())
    axis = Node(f"{name}/axis", "Const", value=np.zeros((), np.int32))
    attr = tf.compat.v1.AttrValue
    for node in readers:
        if node.op == "ReadVariableOp":
            graph.redirect(node.output, f"{name}:0")
            del graph.nodes[node.name]
            continue
        graph.nodes[axis.name] = axis
        kinds = {
            "Tparams": node.attr["dtype"],
            "Tindices": node.attr["Tindices"],
            "Taxis": attr(type=tf.int32.as_datatype_enum),
            "batch_dims": node.attr["batch_dims"],
        }
        graph.nodes[node.name] = Node(node.name, "GatherV2", [*node.inputs, axis.output], kinds)
    graph.sort()
    return True


def check_rows(piece: Graph, rows_of: Mapping[str, int]) -> None:
    """Run a piece on made-up rows, together and one by one.

    Args:
        piece: the piece.
        rows_of: input → rows of the smallest table that it indexes.

    Raises:
        CompileError: a row's result depends on the other rows.
    """
    run = as_function(piece)
    for rows in made_up_rows(piece, rows_of):
        try:
            together = run(rows)
            for index in range(ROWS):
                _compare(piece, together, run({n: v[index : index + 1] for n, v in rows.items()}), index)
        except tf.errors.OpError:
            continue  # values that the piece refuses; the samples come later


_HINTS = {
    **dict.fromkeys(BRANCHES, "compute both sides and choose with tf.where, row by row"),
    **dict.fromkeys(
        LOOPS, "let a row that is done keep its values with tf.where, or fix the number of steps"
    ),
}


def _compare(piece: Graph, together: Arrays, alone: Arrays, index: int) -> None:
    for name, values in alone.items():
        if not _same(together[name][index : index + 1], values):
            ref = piece.outputs[name]
            op = piece.producer(ref).op
            raise CompileError(
                f"op {op} (node '{node_of(ref)}')",
                "gives a row other values beside other rows, so batching would change scores",
                _HINTS.get(op, "compute it row by row in the model"),
            )


def _same(together: Any, alone: Any) -> bool:
    if together.shape[2:] != alone.shape[2:] or together.ndim != alone.ndim:
        return False
    if together.ndim > 1:  # sequences are padded to the longest of the batch
        shorter = min(together.shape[1], alone.shape[1])
        together, alone = together[:, :shorter], alone[:, :shorter]
    if together.dtype.kind != "f":
        return bool(np.array_equal(together, alone))
    return bool(np.allclose(together, alone, rtol=1e-5, atol=1e-6, equal_nan=True))
