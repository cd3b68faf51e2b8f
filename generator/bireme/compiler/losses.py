"""What the build's own gates allowed and measured, for whoever compares scores later."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from bireme.compiler.fp16.half import tensor_types
from bireme.compiler.fp16.precision import Precision
from bireme.compiler.fp16.ranking import Change
from bireme.losses import Loss
from bireme.spec import BuildSpec

__all__ = ["find_losses"]


def find_losses(spec: BuildSpec, precision: Precision, storage: Mapping[str, Change]) -> tuple[Loss, ...]:
    """Every rounding of a build; none if it is FP32 throughout.

    Args:
        spec: has the limits.
        precision: what of the network and the hand-over is FP16.
        storage: task → what the tables' storage changes.
    """
    losses = [
        Loss(task=t, source="storage", allowed=spec.storage_limits.score, measured=c.score)
        for t, c in storage.items()
    ]
    if _rounds(precision):
        seen = [precision.searched or {}, precision.held_out or {}]
        losses += [
            Loss(
                task=task,
                source="precision",
                allowed=spec.precision.tolerance,
                measured=max(changes[task].score for changes in seen),
            )
            for task in seen[0]
        ]
    return tuple(losses)


def _rounds(precision: Precision) -> bool:
    """Whether anything became FP16: a search may end with everything in FP32."""
    return (
        precision.handover == "float16" or onnx.TensorProto.FLOAT16 in tensor_types(precision.dense).values()
    )
