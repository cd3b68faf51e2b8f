"""The user's patterns in `precision`: which nodes they name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

import onnx

from bireme.compiler.fp16.half import MOVES, is_float, tensor_types
from bireme.compiler.fp16.layers import origin
from bireme.errors import SpecError

__all__ = ["match_nodes"]


def match_nodes(model: onnx.ModelProto, patterns: Sequence[str], field: str) -> dict[str, str]:
    """Nodes that a list of patterns names.

    Args:
        model: the lifted network, its nodes documented with their origin.
        patterns: name in TensorFlow, op, or name in ONNX; with * and ?.
        field: the spec's field, for messages.

    Returns:
        Node → the pattern that names it.

    Raises:
        SpecError: a pattern names no node that computes FP32 numbers.
    """
    types = tensor_types(model)
    nodes = [n for n in model.graph.node if is_float(n, types) and n.op_type not in MOVES]
    found: dict[str, str] = {}
    for pattern in patterns:
        named = [
            node.name
            for node in nodes
            if any(fnmatchcase(text, pattern) for text in (origin(node), node.op_type, node.name))
        ]
        if not named:
            known = sorted({text for node in nodes for text in (origin(node), node.op_type)})
            near = difflib.get_close_matches(pattern.replace("*", ""), known, n=3, cutoff=0.3) or known[:5]
            raise SpecError(
                f"precision.{field}: '{pattern}'",
                "names no node of the network",
                f"there are: {', '.join(near)}",
            )
        found.update(dict.fromkeys(named, pattern))
    return found
