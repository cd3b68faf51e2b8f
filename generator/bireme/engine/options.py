"""What a user can ask of a build, and what a builder hands back. Both tools share these."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bireme_runtime.passport import BuiltBy, Precision, Shapes

__all__ = ["DEFAULT_OPTIONS", "Built", "Job", "Options", "Progress", "with_elapsed"]

Progress = Callable[[str], None]
"""Is told what is going on, in a few words."""


@dataclass(frozen=True)
class Options:
    """What a user asks of the builder.

    Args:
        workspace_mb: most scratch memory of one layer, in MiB; None: TensorRT's default, all of the GPU's.
        level: builder optimization level, 0 (fast build) to 5; None: TensorRT's default.
        tf32: let matrices of FP32 be multiplied with the 10 bits of mantissa of TF32. Off: what the
            precision pass keeps in FP32 is FP32.
    """

    workspace_mb: int | None = None
    level: int | None = None
    tf32: bool = False

    def flags(self) -> dict[str, Any]:
        """As recorded in the passport."""
        return {"workspace_mb": self.workspace_mb, "level": self.level, "tf32": self.tf32}


DEFAULT_OPTIONS = Options()


@dataclass(frozen=True)
class Job:
    """One plan to build.

    Args:
        model: name of the Triton model, for messages.
        onnx: the network.
        profile: input → range of shapes.
        shapes: every shape that must be accepted, ascending: input → sizes, users first.
        options: what the user asked.
        timing_cache: file with the timings of earlier builds, read if it is there and written; None: none.
        progress: told what is going on.
    """

    model: str
    onnx: Path
    profile: Mapping[str, Shapes]
    shapes: Sequence[Mapping[str, tuple[int, ...]]]
    options: Options
    timing_cache: Path | None
    progress: Progress


@dataclass(frozen=True)
class Built:
    """A plan.

    Args:
        plan: its bytes.
        tensorrt: the version that built it.
        precision: how the types in the ONNX were imposed.
        built_by: the tool.
        wanted_fp32: ONNX nodes (or TensorRT's layers) that must compute in FP32.
        warnings: what the builder warned of, for the report.
        types: tensor → data type ("FP16", …) of the plan's inputs and outputs; empty: not known.
        inspected: TensorRT's own description of the layers (JSON), with the profile's largest shapes; None:
            the tool could not tell.
        device_memory: bytes of GPU memory that one execution context takes; None: not known.
    """

    plan: bytes
    tensorrt: str
    precision: Precision
    built_by: BuiltBy
    wanted_fp32: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    inspected: Mapping[str, Any] | None = None
    device_memory: int | None = None


def with_elapsed(progress: Progress) -> Progress:
    """Progress with the seconds since now in front: TensorRT 8 does not say how far it is."""
    begun = time.monotonic()
    return lambda text: progress(f"{time.monotonic() - begun:.0f} s, {text}")
