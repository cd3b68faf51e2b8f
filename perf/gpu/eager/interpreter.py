"""Executes a dense ONNX node by node with PyTorch: FP32, one kernel after the other, nothing captured.

Knows the operators that occur in the networks of this benchmark, and says which one it does not know. It is
copied beside the Triton models that use it, so that it imports nothing but torch, onnx and numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

__all__ = ["Eager"]

Tensor = Any
_HALVES = (np.dtype("float16"), np.dtype("float64"))
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


class Eager:
    """A network on one device and one stream; whatever was rounded to FP16 is computed in FP32.

    Args:
        path: the ONNX.
        device: "cuda" or "cpu".
    """

    def __init__(self, path: Path, device: str) -> None:
        graph = onnx.load(str(path)).graph
        self._device = torch.device(device)
        self._constants = {value.name: self._constant(value) for value in graph.initializer}
        self._nodes = [
            (_operator(node.op_type), list(node.input), list(node.output), _attributes(node))
            for node in graph.node
        ]
        #: names of the inputs and outputs
        self.inputs = [value.name for value in graph.input if value.name not in self._constants]
        self.tasks = [value.name for value in graph.output]

    @property
    def operators(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    @torch.inference_mode()
    def run(self, feeds: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Scores of a batch.

        Args:
            feeds: input → array, FP16 or FP32.

        Returns:
            Task → FP32.
        """
        values = dict(self._constants)
        for name in self.inputs:
            given = torch.from_numpy(np.ascontiguousarray(feeds[name]))
            values[name] = given.to(self._device).float()
        for operator, inputs, outputs, attributes in self._nodes:
            arguments = [values[name] if name else None for name in inputs]
            found = operator(attributes, *arguments)
            many = found if isinstance(found, (list, tuple)) else [found]
            values.update(zip(outputs, many, strict=False))
        return {task: values[task].float().cpu().numpy() for task in self.tasks}

    def _constant(self, value: Any) -> Tensor:
        array = numpy_helper.to_array(value)
        # Shapes, axes and indices stay on the CPU, where an eager framework needs them.
        if array.dtype.kind in "iub":
            return torch.from_numpy(np.array(array))
        kind = np.float32 if array.dtype in _HALVES else array.dtype
        return torch.from_numpy(np.array(array, dtype=kind)).to(self._device)


def _attributes(node: Any) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _operator(name: str) -> Callable[..., Any]:
    if name not in _OPERATORS:
        raise ValueError(f"the eager baseline does not know the operator {name}")
    return _OPERATORS[name]


def _axes(attributes: Mapping[str, Any], given: Tensor | None, rank: int) -> list[int]:
    axes = given.tolist() if given is not None else list(attributes.get("axes", range(rank)))
    return [int(axis) for axis in axes]


def _mean(at: Mapping[str, Any], x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.mean(_axes(at, axes, x.dim()), keepdim=bool(at.get("keepdims", 1)))


def _sum(at: Mapping[str, Any], x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.sum(_axes(at, axes, x.dim()), keepdim=bool(at.get("keepdims", 1)))


def _max(at: Mapping[str, Any], x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.amax(_axes(at, axes, x.dim()), keepdim=bool(at.get("keepdims", 1)))


def _reshape(at: Mapping[str, Any], x: Tensor, shape: Tensor) -> Tensor:  # noqa: ARG001
    sizes = [int(x.shape[k]) if size == 0 else int(size) for k, size in enumerate(shape.tolist())]
    return x.reshape(sizes)


def _squeeze(at: Mapping[str, Any], x: Tensor, axes: Tensor | None = None) -> Tensor:
    ones = [k for k, size in enumerate(x.shape) if size == 1]
    chosen = ones if axes is None and "axes" not in at else _axes(at, axes, x.dim())
    return x.squeeze(tuple(axis % x.dim() for axis in chosen))


def _unsqueeze(at: Mapping[str, Any], x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = _axes(at, axes, x.dim())
    rank = x.dim() + len(chosen)
    for axis in sorted(axis % rank for axis in chosen):
        x = x.unsqueeze(axis)
    return x


def _slice(
    at: Mapping[str, Any],
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    chosen = _axes(at, axes, len(starts)) if axes is not None else list(range(len(starts)))
    strides = steps.tolist() if steps is not None else [1] * len(starts)
    index = [slice(None)] * x.dim()
    for axis, start, end, step in zip(chosen, starts.tolist(), ends.tolist(), strides, strict=True):
        index[axis] = slice(start, end, step)
    return x[tuple(index)]


def _gather(at: Mapping[str, Any], x: Tensor, index: Tensor) -> Tensor:
    axis = int(at.get("axis", 0))
    flat = x.index_select(axis, index.reshape(-1).to(x.device))
    return flat.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _cast(at: Mapping[str, Any], x: Tensor) -> Tensor:
    if at["to"] in _FLOATS:
        return x.float()
    return x.to({onnx.TensorProto.INT64: torch.int64, onnx.TensorProto.INT32: torch.int32}[at["to"]])


def _concat(at: Mapping[str, Any], *parts: Tensor) -> Tensor:
    return torch.cat(parts, dim=int(at["axis"]))


def _expand(at: Mapping[str, Any], x: Tensor, shape: Tensor) -> Tensor:  # noqa: ARG001
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(shape.tolist())))


def _split(at: Mapping[str, Any], x: Tensor, sizes: Tensor | None = None) -> Any:
    axis = int(at.get("axis", 0))
    if sizes is not None or "split" in at:
        return x.split([int(n) for n in (sizes.tolist() if sizes is not None else at["split"])], dim=axis)
    return x.chunk(int(at["num_outputs"]), dim=axis)


def _gemm(at: Mapping[str, Any], a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a, b = (a.T if at.get("transA") else a), (b.T if at.get("transB") else b)
    product = float(at.get("alpha", 1.0)) * (a @ b)
    return product if c is None else product + float(at.get("beta", 1.0)) * c


def _layer_norm(at: Mapping[str, Any], x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
    axis = int(at.get("axis", -1)) % x.dim()
    return torch.nn.functional.layer_norm(x, x.shape[axis:], scale, shift, float(at.get("epsilon", 1e-5)))


def _plain(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda at, *arguments: function(*arguments)  # noqa: ARG005


_OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": _plain(torch.add),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _plain(torch.div),
    "Exp": _plain(torch.exp),
    "Expand": _expand,
    "Gather": _gather,
    "Gemm": _gemm,
    "Identity": _plain(lambda x: x),
    "LayerNormalization": _layer_norm,
    "MatMul": _plain(torch.matmul),
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "Pow": _plain(torch.pow),
    "Reciprocal": _plain(torch.reciprocal),
    "ReduceMax": _max,
    "ReduceMean": _mean,
    "ReduceSum": _sum,
    "Relu": _plain(torch.relu),
    "Reshape": _reshape,
    "Shape": _plain(lambda x: torch.tensor(x.shape)),
    "Sigmoid": _plain(torch.sigmoid),
    "Slice": _slice,
    "Softmax": lambda at, x: torch.softmax(x, dim=int(at.get("axis", -1))),
    "Split": _split,
    "Sqrt": _plain(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _plain(torch.sub),
    "Tanh": _plain(torch.tanh),
    "Transpose": lambda at, x: x.permute([int(k) for k in at["perm"]]),
    "Unsqueeze": _unsqueeze,
}
