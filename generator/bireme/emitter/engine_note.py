"""The note beside the GPU network's ONNX: how to build the TensorRT plan that its config.pbtxt expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bireme.emitter.artifacts import onnx_inputs
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
        outputs: how many there are.
    """

    name: str
    onnx: bytes
    widths: Mapping[str, int]
    outputs: int


def engine_note(contract: Contract, network: Network) -> str:
    """Text with one trtexec command line: one optimization profile that holds every captured graph."""
    shapes = graph_plan(contract)
    profile = {
        "minShapes": (1, contract.buckets[0]),
        # TensorRT tunes its kernels for this one: the middle of what will be captured.
        "optShapes": shapes[len(shapes) // 2],
        "maxShapes": (contract.max_users, contract.max_candidates),
    }
    inputs = onnx_inputs(network.onnx)
    flags = ["--onnx=model.onnx", "--saveEngine=model.plan"]
    flags += [f"--{name}={_shapes(network, *shape)}" for name, shape in profile.items()]
    if "FLOAT16" in inputs.values():
        remark = (
            "The inputs are FP16, the weights FP32: add --fp16 (TensorRT 8.6 and 10) for FP16 kernels.\n"
            "TensorRT 11 goes by the types in the ONNX alone and computes in FP32."
        )
    else:
        # Linear layout ("chw") whatever the rank; one entry per tensor, in the graph's order.
        flags += [
            "--fp16",
            f"--inputIOFormats={','.join('fp16:chw' for _ in inputs)}",
            f"--outputIOFormats={','.join('fp32:chw' for _ in range(network.outputs))}",
        ]
        remark = (
            "The ONNX is FP32, so these flags choose FP16; TensorRT 11 dropped them and needs an FP16 ONNX."
        )
    command = " \\\n    ".join(["trtexec", *flags])
    return (
        f"{network.name} needs a model.plan, which only the GPU that will serve it can build.\n"
        "Run this here, with the trtexec of the container that will serve, on that kind of GPU:\n\n"
        f"{command}\n\n"
        f"{remark}\n"
        "Then start the server with --model-load-thread-count=1: CUDA Graphs captured while another\n"
        "TensorRT model loads may be missing or wrong.\n"
    )


def _shapes(network: Network, users: int, bucket: int) -> str:
    return ",".join(
        f"{name}:{users}x{bucket}x{width}" if name == ITEMS else f"{name}:{users}x{width}"
        for name, width in network.widths.items()
    )
