"""What `split` says where it stops: which op stands in the way, and what would help."""

from __future__ import annotations

from bireme.compiler.graph import Node
from bireme.compiler.rules.values import Ids, Masked, Numbers, Raw, Rows, Text, Value, value_feature
from bireme.compiler.shapes import TensorSpec
from bireme.errors import CompileError

__all__ = ["cannot_cross", "half_precision", "not_served", "unfit"]


def half_precision(node: Node) -> CompileError:
    """The error for a model that was trained in mixed precision."""
    return CompileError(
        f"op {node.op} (node '{node.name}')",
        "computes in half precision, which no two runtimes do alike",
        "export the model with the policy 'float32'",
    )


def cannot_cross(
    node: Node, spec: TensorSpec | None, features: list[str], sequences: list[str]
) -> CompileError:
    """The error for what an engine on the CPU computes, and that is no columns of numbers.

    Args:
        node: what computes it.
        spec: what is known of it.
        features: the features that it is made of.
        sequences: those that may have any length.
    """
    what = (
        "a tensor of an unknown shape"
        if spec is None or spec.shape is None
        else f"{spec.dtype} {list(spec.shape)}"
    )
    return CompileError(
        f"op {node.op} (node '{node.name}')",
        f"gives {what}, made of {', '.join(features)}: no columns that can be handed to the DNN",
        f"fix its length: `lengths: {{{sequences[0]}: …}}` in the spec, or pool it in the model"
        if sequences
        else "tell its shape in the model: tf.ensure_shape(x, [None]), or [None, columns], and as float32",
    )


def not_served(node: Node) -> CompileError:
    """The error for a source that is no feature of the signature: a resource, a random number."""
    return CompileError(
        f"op {node.op} (node '{node.name}')",
        "makes values that are no input of the signature",
        "export the model in inference mode, with all that it reads as inputs or weights",
    )


def unfit(value: Value, reader: Node | None, task: str) -> CompileError:
    """The error for a CPU-side value that reaches the dense side without being columns of numbers."""
    what, hint = {
        Raw: ("a raw feature that is no single float", "cast a number to float32; look a string up"),
        Text: ("strings", "hash them, or look them up"),
        Ids: ("integer ids", "ids can only select rows of an embedding table"),
        Masked: (
            "a sequence mask",
            f"fix its length: `lengths: {{{value_feature(value)}: …}}` in the spec; or pool it in the model",
        ),
        Rows: (
            "an unpooled sequence of embeddings",
            f"fix its length: `lengths: {{{value_feature(value)}: …}}` in the spec; or pool it in the model",
        ),
        Numbers: ("a number", ""),
    }[type(value)]
    where = f"op {reader.op} (node '{reader.name}')" if reader is not None else f"output '{task}'"
    return CompileError(
        where,
        f"reads {what}, made of feature '{value_feature(value)}', which this version cannot hand to the DNN",
        hint,
    )
