"""What the compiler hands to the emitter, and the check that it fits the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bireme.ahead import UserAhead
from bireme.emitter.tensors import check_file_name, handed_over
from bireme.errors import EmitError
from bireme.spec import Contract
from bireme_runtime.plan import IntVocabulary, Plan, Subgraph, Vocabulary
from bireme_runtime.text_steps import Pick

__all__ = ["Artifacts", "Writer", "check_artifacts", "computed_in_fp32"]

Writer = bytes | Callable[[Path], None]
"""A file's content, or a function that streams it to the path it is given."""

_TAKEN = ("model.py", "model.onnx", "plan.json", "bireme_runtime")


@dataclass(frozen=True)
class Artifacts:
    """A compiled model.

    Args:
        plan: the feature plan.
        files: file name → content, for the arenas and vocabularies that the plan names.
        dense_onnx: the dense network; inputs `user` [users, user_width] (none if that is 0) and `items`
            [users, candidates, item_width], one output [users, candidates] per task, named like it.
        example_request: {"user": {…}, "items": {…}}, written for people and for the smoke test; or None.
        provenance: where it came from: hashes, versions; no machine paths, no times.
        report: what the compiler found out.
        page: the report as a page (HTML), or None: no page.
        user_ahead: the models of the user side ahead of time, or None: not asked for.
        native: file name → content, for `bireme_runtime/native/` of every `preprocess`: the kernel's library.
    """

    plan: Plan
    files: Mapping[str, Writer]
    dense_onnx: bytes
    example_request: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    page: bytes | None = None
    user_ahead: UserAhead | None = None
    native: Mapping[str, bytes] = field(default_factory=dict)


def check_artifacts(artifacts: Artifacts, contract: Contract) -> None:
    """Refuse artifacts that are incomplete, or not those of this contract.

    Raises:
        EmitError: naming what does not fit.
    """
    plan = artifacts.plan
    meant = {
        "model": (plan.model, contract.model),
        "features": (plan.features, contract.features),
        "user_width": (plan.user_width, contract.user_width),
        "item_width": (plan.item_width, contract.item_width),
        "handover": (plan.handover, contract.handover),
        "buckets": (plan.buckets, contract.buckets),
        "listwise": (plan.listwise, contract.listwise),
        "pad": (plan.pad, contract.padded),
    }
    for name, (planned, agreed) in meant.items():
        if planned != agreed:
            message = f"says {planned!r} where the contract says {agreed!r}"
            raise EmitError(f"feature plan: {name}", message, "compile and emit for one contract")
    if contract.layout == "fused" and artifacts.user_ahead is not None:
        hint = "leave out `layout: fused` or --user-ahead"
        raise EmitError(contract.model, "is fused, which has no user side ahead of time", hint)
    for name in artifacts.files:
        check_file_name(name)
        if name in _TAKEN:
            raise EmitError(f"file {name!r}", "has a name the emitter needs itself", "choose another name")
    needed = {table.arena for table in plan.tables}
    named = (Vocabulary, IntVocabulary, Pick, Subgraph)
    needed |= {step.file for step in plan.steps if isinstance(step, named)}
    missing = sorted(needed - set(artifacts.files))
    if missing:
        raise EmitError(
            f"file {missing[0]!r}", "is named by the feature plan but was not compiled", "build again"
        )
    _check_dense(artifacts.dense_onnx, contract)


def computed_in_fp32(dense_onnx: bytes) -> list[str] | None:
    """Nodes that a network of mixed precision computes in FP32; None if it has no FP16 at all."""
    from onnx import TensorProto, load_model_from_string, shape_inference

    graph = shape_inference.infer_shapes(load_model_from_string(dense_onnx)).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    if TensorProto.FLOAT16 not in types.values():
        return None
    return [
        node.name
        for node in graph.node
        if node.op_type != "Cast" and TensorProto.FLOAT in {types.get(name) for name in node.output}
    ]


def _check_dense(dense_onnx: bytes, contract: Contract) -> None:
    inputs, outputs = _signature(dense_onnx)
    ranks = {name: rank for name, _, rank in inputs}
    meant = {name: 1 + len(dims) for name, dims in handed_over(contract).items()}
    if ranks != meant:
        found, right = (", ".join(f"{n} of rank {rank}" for n, rank in x.items()) for x in (ranks, meant))
        raise EmitError("dense ONNX", f"takes {found}", f"it must take {right}")
    wanted = {"float32": "FLOAT", "float16": "FLOAT16"}[contract.handover]
    other = next((f"{name} as {element}" for name, element, _ in inputs if element != wanted), None)
    if other is not None:
        raise EmitError("dense ONNX", f"takes {other}", f"the contract hands it over as {wanted}")
    names = [name for name, _, _ in outputs]
    if sorted(names) != sorted(contract.tasks):
        raise EmitError(
            "dense ONNX", f"gives {', '.join(names)}", f"it must give {', '.join(contract.tasks)}"
        )


def _signature(dense_onnx: bytes) -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """(name, element type, rank) of the graph's inputs and outputs."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import TensorProto, load_model_from_string

    try:
        graph = load_model_from_string(dense_onnx).graph
    except DecodeError:
        raise EmitError("dense ONNX", "is not an ONNX model", "build again") from None

    def describe(values: Any) -> list[tuple[str, str, int]]:
        return [
            (value.name, TensorProto.DataType.Name(tensor.elem_type), len(tensor.shape.dim))
            for value in values
            for tensor in [value.type.tensor_type]
        ]

    constants = {tensor.name for tensor in graph.initializer}
    return describe(value for value in graph.input if value.name not in constants), describe(graph.output)
