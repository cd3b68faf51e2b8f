"""How large, how small and how spread the tensors of a network are on sample requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from bireme.compiler.dense import runner
from bireme.compiler.fp16.half import tensor_types

__all__ = ["Range", "column_ranges", "tensor_ranges"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Range:
    """What was seen of a tensor.

    Args:
        largest: largest absolute value.
        count: elements.
        total: sum.
        squares: sum of squares.
        exact: whether FP16 holds every value exactly.
    """

    largest: float = 0.0
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    exact: bool = True

    def seen(self, values: Array) -> Range:
        """This and further values; those that are not finite are left out."""
        known = values[np.isfinite(values)].astype(np.float64)
        if not known.size:
            return self
        with np.errstate(over="ignore"):
            exact = bool((values.astype(np.float16) == values)[np.isfinite(values)].all())
        return replace(
            self,
            largest=max(self.largest, float(np.abs(known).max())),
            count=self.count + known.size,
            total=self.total + float(known.sum()),
            squares=self.squares + float((known * known).sum()),
            exact=self.exact and exact,
        )

    @property
    def size(self) -> float:
        """Root of the mean square."""
        return float(np.sqrt(self.squares / self.count)) if self.count else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation."""
        if not self.count:
            return 0.0
        return float(np.sqrt(max(0.0, self.squares / self.count - (self.total / self.count) ** 2)))


def tensor_ranges(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Range]:
    """Ranges of the inputs and of every FP32 tensor that a node makes.

    Args:
        model: an FP32 network.
        feeds: inputs of each request.
    """
    types = tensor_types(model)
    made = [
        name for node in model.graph.node for name in node.output if types.get(name) == onnx.TensorProto.FLOAT
    ]
    ranges = {name: Range() for name in (*(value.name for value in model.graph.input), *made)}
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    for name in made:
        probe.graph.output.add(name=name).type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    run = runner(probe)
    for feed in feeds:
        for name, values in (*feed.items(), *run(dict(feed)).items()):
            if name in ranges:
                ranges[name] = ranges[name].seen(values)
    return ranges


def column_ranges(arrays: Iterable[Array]) -> list[Range]:
    """Range of each column of blocks [..., width]."""
    ranges: list[Range] = []
    for array in arrays:
        columns = array.reshape(-1, array.shape[-1]).T
        ranges = ranges or [Range() for _ in columns]
        ranges = [known.seen(values) for known, values in zip(ranges, columns, strict=True)]
    return ranges
