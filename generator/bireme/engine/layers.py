"""What TensorRT made of a network: its layers, their precision, kernels and tensors. Pure functions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bireme.engine.options import Built

__all__ = ["Layer", "layer_report", "layers_of", "spoiled_fp32"]

_KIND = re.compile(
    r"\b(FP32|FP16|BF16|FP8|INT8|INT32|INT64|BOOL|Float|Half|Int32|Int64|Bool)\b", re.IGNORECASE
)
_NAMES = {"FLOAT": "FP32", "HALF": "FP16"}
_BYTES = {"FP32": 4, "FP16": 2, "BF16": 2, "INT32": 4, "INT64": 8, "INT8": 1, "FP8": 1, "BOOL": 1}
# A layer's name lists the nodes in it: "MatMul_3 + Add_4", "PWN(PWN(Sigmoid_5), Mul_6)". A group whose inside
# TensorRT does not show is called "{ForeignNode[first...last]}".
_PARTS = re.compile(r"\s\+\s|PWN\(|[(),]")
_OPAQUE = "ForeignNode"
# Kernels that multiply FP16 matrices, by their names.
_HALF_KERNEL = re.compile(r"_f16f16_|hgemm|h884gemm|h1688gemm|h16816gemm", re.IGNORECASE)
_LARGEST = 5


@dataclass(frozen=True)
class Layer:
    """One layer of a plan.

    Args:
        name: as TensorRT calls it.
        kind: its type, such as "gemm" or "Myelin".
        kernel: the kernel chosen; "" where TensorRT does not say.
        inputs: (tensor, data type, elements) of each input; data type "?" where it is not said, 0 elements
            where the shape is not known.
        outputs: the same for its outputs.
    """

    name: str
    kind: str
    kernel: str
    inputs: tuple[tuple[str, str, int], ...]
    outputs: tuple[tuple[str, str, int], ...]

    @property
    def precision(self) -> str:
        """The type that its outputs have, or the types."""
        return "/".join(sorted({kind for _, kind, _ in self.outputs})) or "?"

    @property
    def nodes(self) -> set[str]:
        """The nodes that its name lists; none for a group whose inside is not shown."""
        if _OPAQUE in self.name:
            return set()
        return {part.strip() for part in _PARTS.split(self.name) if part and part.strip()}


def layers_of(inspected: Mapping[str, Any]) -> list[Layer]:
    """The layers in what TensorRT's engine inspector tells; those without details by their name only."""
    found = []
    for raw in inspected.get("Layers") or []:
        if isinstance(raw, str):
            found.append(Layer(raw, "?", "", (), ()))
            continue
        found.append(
            Layer(
                name=str(raw.get("Name", "?")),
                kind=str(raw.get("ParameterType") or raw.get("LayerType") or "?"),
                kernel=str(raw.get("TacticName") or ""),
                inputs=_tensors(raw.get("Inputs")),
                outputs=_tensors(raw.get("Outputs")),
            )
        )
    return found


def spoiled_fp32(layers: Sequence[Layer], wanted: Sequence[str]) -> list[tuple[str, str]]:
    """(Layer, kernel) of those that must compute in FP32 and demonstrably do not.

    Only proof counts: a layer made of such nodes alone, whose kernel is one that multiplies FP16. Groups
    whose inside TensorRT does not show are not judged.
    """
    must = set(wanted)
    return [
        (layer.name, layer.kernel)
        for layer in layers
        if layer.nodes and layer.nodes <= must and _HALF_KERNEL.search(layer.kernel)
    ]


def layer_report(built: Built) -> dict[str, Any]:
    """What engine_report.json holds, as JSON values; it says null where the tool could not tell."""
    layers = layers_of(built.inspected) if built.inspected is not None else None
    detailed = layers is not None and any(layer.outputs for layer in layers)
    # 8.6 says "N/A due to dynamic shapes" of every tensor, whatever shapes its context has been given.
    typed = any(layer.precision != "?" for layer in layers or [])
    tensors: dict[str, tuple[str, int]] = {}
    for layer in layers or []:
        for name, kind, elements in layer.outputs:
            tensors[name] = (kind, elements * _BYTES.get(kind, 0))
    largest = sorted(tensors.items(), key=lambda item: -item[1][1])[:_LARGEST]
    return {
        "tensorrt": built.tensorrt,
        "built_by": built.built_by,
        "precision": built.precision,
        "plan_bytes": len(built.plan),
        "device_memory_bytes": built.device_memory,
        "layer_count": len(layers) if layers is not None else None,
        "layers_by_precision": dict(Counter(layer.precision for layer in layers or [])) if typed else None,
        "layers_by_type": dict(Counter(layer.kind for layer in layers or [])) if detailed else None,
        "kernels": len({layer.kernel for layer in layers or [] if layer.kernel}) if detailed else None,
        "largest_tensors": [
            {"tensor": name, "type": kind, "bytes": size} for name, (kind, size) in largest if size
        ]
        if typed
        else None,
        "wanted_fp32": list(built.wanted_fp32),
        "warnings": list(built.warnings),
        "layers": [
            {
                "name": layer.name,
                "type": layer.kind,
                "precision": layer.precision,
                "kernel": layer.kernel,
            }
            for layer in layers or []
        ],
    }


def _tensors(raw: Any) -> tuple[tuple[str, str, int], ...]:
    found = []
    for tensor in raw or []:
        if not isinstance(tensor, dict):
            continue
        text = str(tensor.get("Format/Datatype") or tensor.get("Format") or "")
        match = _KIND.search(text)
        kind = _NAMES.get(match[1].upper(), match[1].upper()) if match else "?"
        sizes = [size for size in tensor.get("Dimensions") or [] if isinstance(size, int)]
        elements = math.prod(sizes) if sizes and min(sizes) >= 0 else 0
        found.append((str(tensor.get("Name", "?")), kind, elements))
    return tuple(found)
