"""A piece of the original graph as a file for another engine on the CPU, and whether it keeps rows apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from bireme.compiler.check import Arrays, as_function
from bireme.compiler.dense import runner, to_onnx
from bireme.compiler.graph import Graph, Node, node_of, tf
from bireme.compiler.shapes import TensorSpec
from bireme.errors import CompileError

__all__ = ["as_onnx", "as_tensorflow", "check_rows", "tensorflow_only"]

_ROWS = 7
_LENGTH = 5
#: Text that string ops accept: none of it is a number, or all of it.
_WORDS = ([b"a", b"b|c", b"", b" X ", "é".encode(), b"12"], [b"0", b"1", b"12", b"3", b"7", b"20"])
#: A GraphDef holds at most 2 GB.
_MOST_BYTES = 1_500_000_000


def tensorflow_only(piece: Graph, specs: Mapping[str, TensorSpec]) -> str:
    """The op for which ONNX Runtime cannot run a piece, as "op (node 'name')"; "" if there is none."""
    for node in piece.nodes.values():
        refs = [*node.inputs, node.output]
        if node.name in piece.captures or any(
            ref in specs and specs[ref].dtype in ("string", "resource", "variant") for ref in refs
        ):
            users = [n for n in piece.nodes.values() if node.output in n.inputs]
            shown = users[0] if node.op == "Placeholder" and users else node
            return f"{shown.op} (node '{shown.name}')"
    return ""


def as_onnx(piece: Graph) -> tuple[onnx.ModelProto | None, str]:
    """A numeric piece as ONNX, if it then gives what TensorFlow gives; else None, and why.

    Integers have to be equal; floats may differ by their rounding.
    """
    try:
        model = to_onnx(piece)
        run = runner(model)
        for rows in _made_up(piece):
            try:
                expected = as_function(piece)(rows)
            except tf.errors.OpError:
                continue
            found = run(rows)
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
        The GraphDef, and its lookup tables: (placeholder, constant of keys, constant of values).

    Raises:
        CompileError: it holds a table that no file can hold.
    """
    graph = piece.copy()
    tables = []
    for name, capture in piece.captures.items():
        if capture.kind == "variable":
            _freeze(graph, name)
            continue
        keys, values = _entries(piece, name)
        graph.nodes[f"{name}/keys"] = Node(f"{name}/keys", "Const", value=keys)
        graph.nodes[f"{name}/values"] = Node(f"{name}/values", "Const", value=values)
        tables.append((name, f"{name}/keys", f"{name}/values"))
    return graph.to_graph_def(), tuple(tables)


def _entries(piece: Graph, name: str) -> tuple[Any, Any]:
    """Keys and values of a lookup table."""
    find = next(node for node in piece.nodes.values() if node.inputs and node_of(node.inputs[0]) == name)
    if find.op != "LookupTableFindV2":
        raise CompileError(
            f"op {find.op} (node '{find.name}')",
            "asks a lookup table for more than its values",
            "look keys up only, or leave it out of the served outputs",
        )
    kinds = [tf.as_dtype(find.attr[key].type) for key in ("Tin", "Tout")]
    found = tf.raw_ops.LookupTableExportV2(
        table_handle=piece.captures[name].handle, Tkeys=kinds[0], Tvalues=kinds[1]
    )
    return found[0].numpy(), found[1].numpy()


def _freeze(graph: Graph, name: str) -> None:
    """Reads of a variable become reads of a constant."""
    variable = graph.captures.pop(name).variable
    if variable.dtype.size * int(np.prod(variable.shape)) > _MOST_BYTES:
        raise CompileError(
            f"embedding table '{variable.name.removesuffix(':0')}'",
            "is too large for the TensorFlow fallback that its lookup needs",
            "look its rows up by ids of a feature, a hash or a vocabulary, and pool them by sum or mean",
        )
    graph.nodes[name] = Node(name, "Const", value=variable.numpy())
    axis = Node(f"{name}/axis", "Const", value=np.zeros((), np.int32))
    attr = tf.compat.v1.AttrValue
    for node in list(graph.nodes.values()):
        if node.op == "ReadVariableOp" and node_of(node.inputs[0]) == name:
            graph.redirect(node.output, f"{name}:0")
            del graph.nodes[node.name]
        elif node.op == "ResourceGather" and node_of(node.inputs[0]) == name:
            graph.nodes[axis.name] = axis
            kinds = {
                "Tparams": node.attr["dtype"],
                "Tindices": node.attr["Tindices"],
                "Taxis": attr(type=tf.int32.as_datatype_enum),
                "batch_dims": node.attr["batch_dims"],
            }
            graph.nodes[node.name] = Node(node.name, "GatherV2", [*node.inputs, axis.output], kinds)
    graph.sort()


def check_rows(piece: Graph) -> None:
    """Run a piece on made-up rows, together and one by one.

    Raises:
        CompileError: a row's result depends on the other rows.
    """
    run = as_function(piece)
    for rows in _made_up(piece):
        try:
            together = run(rows)
            for index in range(_ROWS):
                alone = run({name: values[index : index + 1] for name, values in rows.items()})
                for name, values in alone.items():
                    if not _same(together[name][index : index + 1], values):
                        ref = piece.outputs[name]
                        raise CompileError(
                            f"op {piece.producer(ref).op} (node '{node_of(ref)}')",
                            "gives a row other values beside other rows, so batching would change scores",
                            "compute it row by row in the model",
                        )
            return
        except tf.errors.OpError:
            continue  # made-up text that the piece refuses; the samples come later


def _same(together: Any, alone: Any) -> bool:
    if together.shape[2:] != alone.shape[2:] or together.ndim != alone.ndim:
        return False
    if together.ndim < 2:
        return bool(np.array_equal(together, alone))
    shorter = min(together.shape[1], alone.shape[1])  # sequences are padded to the longest of the batch
    return bool(np.allclose(together[:, :shorter], alone[:, :shorter], rtol=1e-5, atol=1e-6, equal_nan=True))


def _made_up(piece: Graph) -> list[Arrays]:
    """Rows for the piece's inputs: small numbers, and text of two kinds."""
    results = []
    for words in _WORDS:
        rng = np.random.default_rng(0)
        rows: Arrays = {}
        for name in piece.features:
            attr = piece.nodes[piece.features[name]].attr
            dims = [d.size for d in attr["shape"].shape.dim]
            shape = (_ROWS, *(d if d > 0 else _LENGTH for d in dims[1:]))
            rows[name] = _values(tf.as_dtype(attr["dtype"].type), shape, words, rng)
        results.append(rows)
    return results


def _values(dtype: Any, shape: tuple[int, ...], words: list[bytes], rng: np.random.Generator) -> Any:
    if dtype == tf.string:
        return np.array([words[i] for i in rng.integers(0, len(words), shape).reshape(-1)], object).reshape(
            shape
        )
    if dtype == tf.bool:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        return rng.integers(0, 40, shape).astype(dtype.as_numpy_dtype)
    return rng.gamma(1.0, 2.0, shape).astype(dtype.as_numpy_dtype)
