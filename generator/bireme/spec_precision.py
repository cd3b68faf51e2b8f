"""The spec's field `precision`: how the dense network is typed."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

__all__ = ["PrecisionSpec"]


class PrecisionSpec(BaseModel):
    """How much of the dense network may be FP16, and what that may cost.

    A pattern names nodes by their name in TensorFlow ("*/cross_1/*"), by their op ("Softmax"), or by their
    name in the ONNX; * and ? stand for anything.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["auto", "fp16", "fp32"] = "auto"
    """fp16: FP16 where the limits below allow it. fp32: nowhere. auto: fp16 on a GPU, else fp32."""
    keep_fp32: tuple[str, ...] = ()
    """Patterns of nodes that stay FP32."""
    keep_fp16: tuple[str, ...] = ()
    """Patterns of nodes that become FP16 whatever the search says."""
    handover: Literal["auto", "float16", "float32"] = "auto"
    """Type of what preprocess hands over. auto: FP16, unless the samples say that it is too coarse."""
    tolerance: float = Field(default=5e-3, gt=0)
    """Largest difference of a score, in units of the task's largest score on the samples."""
    max_auc_change: float = Field(default=1e-4, gt=0)
    """Largest change of AUC (of the samples' labels, or of the unrounded network's top tenth)."""
    max_rank_move: float = Field(default=0.1, gt=0)
    """Farthest that a candidate may move, as a share of its request's candidates; one place is free."""
    evaluations: StrictInt = Field(default=40, ge=0, le=10_000)
    """How often the network may be tried in the search (again, if held-out requests do not confirm it).
    0: no search, `keep_fp32` alone decides."""
