"""The note beside the GPU network's ONNX: how to build the TensorRT plan that its config.pbtxt expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bireme.emitter.artifacts import computed_in_fp32
from bireme.emitter.tensors import ITEMS
from bireme.engine.options import DEFAULT_OPTIONS
from bireme.engine.profile import profile
from bireme.engine.trtexec import option_flags, profile_flags, weakly_typed_flags
from bireme.spec import Contract
from bireme_runtime.passport import Needs

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
    """Text with the command that builds the plan, and the trtexec command line that does the same by hand."""
    dims = {name: (-1, width) if name == ITEMS else (width,) for name, width in network.widths.items()}
    ranks = ITEMS in network.widths
    needs = Needs(dims, contract.max_users, contract.buckets if ranks else ())
    flags = ["--onnx=model.onnx", "--saveEngine=model.plan", *profile_flags(profile(needs))]
    flags += [*option_flags(DEFAULT_OPTIONS), "--stronglyTyped"]
    command = " \\\n    ".join(["trtexec", *flags])
    start = (
        f"{network.name} needs a model.plan, which only the GPU that will serve it can build. There, say:\n\n"
        f"bireme engine -r REPOSITORY --model {network.name}\n\n"
        "with the TensorRT that will serve: its Python package, or trtexec. It also writes passport.json,\n"
        "without which `bireme serve` and the gpu-python target refuse the plan."
    )
    if contract.target == "gpu-python":
        return f"{start}\n"
    return (
        f"{start} By hand, for a server\n"
        "started without bireme, in this folder:\n\n"
        f"{command}\n\n"
        "The types in the ONNX say what is computed in FP16. TensorRT 11 knows no other way and ignores the\n"
        f"flag. TensorRT before 10 does not know it; there, replace it by{_weakly_typed(network.onnx)}\n"
        "Before 10, `bireme engine` also hands over the network in a form that is compiled as a whole: in\n"
        "seconds instead of minutes.\n"
        "Then start the server with --model-load-thread-count=1: CUDA Graphs captured while another\n"
        "TensorRT model loads may be missing or wrong.\n"
    )


def _weakly_typed(onnx: bytes) -> str:
    """The flags that make a builder of weakly typed networks obey the types in the ONNX."""
    first, *others = weakly_typed_flags(computed_in_fp32(onnx)) or [""]
    if not first:
        return " nothing: all is FP32."
    more = " \\\n    ".join(others)
    return f" {first}" + (f"\n\n{more}" if more else "") + "\n"
