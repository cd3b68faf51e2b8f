"""The note beside the GPU network's ONNX: how to build the TensorRT plan that its config.pbtxt expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bireme.emitter.artifacts import computed_in_fp32
from bireme.emitter.graphs import graph_plan
from bireme.emitter.tensors import ITEMS
from bireme.spec import Contract

__all__ = ["Network", "engine_note"]


@dataclass(frozen=True)
class Network:
    """One network of a contract.

    Args:
        name: its model.
        onnx: the network.
        widths: input → columns; `items` also has the candidates.
    """

    name: str
    onnx: bytes
    widths: Mapping[str, int]


def engine_note(contract: Contract, network: Network) -> str:
    """Text with one trtexec command line: one optimization profile that holds every captured graph."""
    shapes = graph_plan(contract)
    profile = {
        "minShapes": (1, contract.buckets[0]),
        # TensorRT tunes its kernels for this one: the middle of what will be captured.
        "optShapes": shapes[len(shapes) // 2],
        "maxShapes": (contract.max_users, contract.max_candidates),
    }
    flags = ["--onnx=model.onnx", "--saveEngine=model.plan"]
    flags += [f"--{name}={_shapes(network, *shape)}" for name, shape in profile.items()]
    flags.append("--stronglyTyped")
    command = " \\\n    ".join(["trtexec", *flags])
    return (
        f"{network.name} needs a model.plan, which only the GPU that will serve it can build.\n"
        "Run this here, with the trtexec of the container that will serve, on that kind of GPU:\n\n"
        f"{command}\n\n"
        "The types in the ONNX say what is computed in FP16. TensorRT 11 knows no other way and ignores the\n"
        f"flag. TensorRT before 10 does not know it; there, replace it by{_weakly_typed(network.onnx)}\n"
        "Then start the server with --model-load-thread-count=1: CUDA Graphs captured while another\n"
        "TensorRT model loads may be missing or wrong.\n"
    )


def _weakly_typed(onnx: bytes) -> str:
    """The flags that make a builder of weakly typed networks obey the types in the ONNX."""
    full = computed_in_fp32(onnx)
    if full is None:
        return " nothing: all is FP32."
    constraints = ",".join(f"{name}:fp32" for name in full)
    obey = f"\n\n--precisionConstraints=obey \\\n    --layerPrecisions={constraints}" if full else ""
    return f" --fp16{obey}\n"


def _shapes(network: Network, users: int, bucket: int) -> str:
    return ",".join(
        f"{name}:{users}x{bucket}x{width}" if name == ITEMS else f"{name}:{users}x{width}"
        for name, width in network.widths.items()
    )
