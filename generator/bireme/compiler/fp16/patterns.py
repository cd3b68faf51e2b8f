"""The user's patterns in `precision`: which nodes they name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import onnx

from bireme.compiler.fp16.half import MOVES, is_float, tensor_types
from bireme.compiler.fp16.layers import origin
from bireme.compiler.fp16.trials import HANDOVER
from bireme.errors import SpecError
from bireme.spec_precision import PrecisionSpec

__all__ = ["match_nodes", "user_choice"]


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


def user_choice(dense: onnx.ModelProto, spec: PrecisionSpec, forced: Mapping[str, str]) -> dict[str, str]:
    """Node → the pattern that keeps it FP32, as a reason.

    Args:
        dense: as for `match_nodes`.
        spec: patterns, and what is said of the hand-over.
        forced: node → why FP16 cannot carry it; the hand-over among them.

    Raises:
        SpecError: a pattern names nothing, contradicts another, or asks for what FP16 cannot carry.
    """
    full = match_nodes(dense, spec.keep_fp32, "keep_fp32")
    half = match_nodes(dense, spec.keep_fp16, "keep_fp16")
    for name, pattern in half.items():
        if name in full:
            where, other = f"precision.keep_fp16: '{pattern}'", full[name]
            raise SpecError(
                where, f"names node {name}, and so does keep_fp32: '{other}'", "keep it in one list"
            )
        if name in forced:
            where = f"precision.keep_fp16: '{pattern}'"
            raise SpecError(
                where, f"names node {name}, which FP16 cannot carry: {forced[name]}", "leave it out"
            )
    if spec.handover == "float16" and HANDOVER in forced:
        raise SpecError(
            "precision.handover: float16", f"cannot be: {forced[HANDOVER]}", "leave it out, or say float32"
        )
    return {name: f"keep_fp32: '{pattern}'" for name, pattern in full.items()}
