"""One network in many precisions: how much its scores and their ranking change on sample requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx

from bireme.compiler.dense import runner
from bireme.compiler.fp16.emulate import emulated
from bireme.compiler.fp16.evidence import Sample
from bireme.compiler.fp16.half import to_half
from bireme.compiler.fp16.ranking import Change, Limits, measure_change, worst_of

__all__ = ["HANDOVER", "Trials", "damage_of"]

Array = np.ndarray[Any, Any]

#: Stands among the nodes for the hand-over: in FP32 if it is kept.
HANDOVER = "user, items"


class Trials:
    """Tries a network on samples, each time with other nodes in FP32.

    Args:
        reference: the network in FP32, untouched.
        model: the same, masks clipped; what is typed.
        samples: requests.
    """

    def __init__(self, reference: onnx.ModelProto, model: onnx.ModelProto, samples: Sequence[Sample]) -> None:
        self._model = model
        self._samples = samples
        self._reference = self._scores(reference)

    def typed(self, kept: Collection[str]) -> tuple[onnx.ModelProto, Literal["float32", "float16"]]:
        """The network with these nodes in FP32, and the type of its inputs."""
        handover: Literal["float32", "float16"] = "float32" if HANDOVER in kept else "float16"
        return to_half(self._model, [name for name in kept if name != HANDOVER], handover), handover

    def changes(self, kept: Collection[str]) -> dict[str, Change]:
        """Task → what becomes of its scores with only these nodes in FP32."""
        return self.compare(emulated(self.typed(kept)[0]))

    def compare(self, model: onnx.ModelProto) -> dict[str, Change]:
        """Task → what becomes of its scores in another network."""
        found = self._scores(model)
        return {
            task: measure_change(
                self._reference[task],
                scores,
                [sample.labels.get(task) for sample in self._samples],
            )
            for task, scores in found.items()
        }

    def _scores(self, model: onnx.ModelProto) -> dict[str, list[Array]]:
        run = runner(model)
        half = {
            value.name
            for value in model.graph.input
            if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
        }
        scores: dict[str, list[Array]] = {}
        for sample in self._samples:
            with np.errstate(over="ignore"):
                feeds = {k: v.astype(np.float16) if k in half else v for k, v in sample.feeds.items()}
            for task, values in run(feeds).items():
                scores.setdefault(task, []).append(values.reshape(-1))
        return scores


def damage_of(changes: Mapping[str, Change], limits: Limits) -> float:
    """How far a change goes, the limit being 1; infinite if scores are lost."""
    worst = worst_of(changes.values())
    if not worst.finite:
        return np.inf
    auc = 0.0 if np.isnan(worst.auc) else worst.auc
    return max(worst.score / limits.score, auc / limits.auc, worst.rank_share / limits.rank_share)
