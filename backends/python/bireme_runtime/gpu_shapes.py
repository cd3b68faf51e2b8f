"""How the tensors of one execution lie in memory: all inputs in one block, all outputs in another.

Each shape of an execution has offsets of its own, without gaps but for the alignment, so that one copy takes
all inputs to the GPU and one brings all outputs back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Layout", "Network", "Place", "Shape", "TensorType", "parse_graphs"]

#: What TensorRT asks of an address.
_ALIGNMENT = 256


class Shape(NamedTuple):
    """One shape of an execution.

    Args:
        users: how many.
        bucket: candidates of each; 0 for a network that knows none.
    """

    users: int
    bucket: int

    def __str__(self) -> str:
        return f"users {self.users}, bucket {self.bucket}" if self.bucket else f"users {self.users}"


@dataclass(frozen=True)
class TensorType:
    """An input or output of the network: [users, (candidates,) *tail].

    Args:
        name: its name.
        dtype: element type.
        per_candidate: whether each candidate has its own row.
        tail: the dimensions behind.
    """

    name: str
    dtype: np.dtype[Any]
    per_candidate: bool
    tail: tuple[int, ...]

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """Its shape in an execution."""
        return (shape.users, *((shape.bucket,) if self.per_candidate else ()), *self.tail)


@dataclass(frozen=True)
class Network:
    """What goes in and what comes out.

    Args:
        inputs: in the order of the plan.
        outputs: in the order of the plan.
    """

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    @property
    def ranks(self) -> bool:
        """Whether it knows candidates."""
        return any(tensor.per_candidate for tensor in self.inputs)


@dataclass(frozen=True)
class Place:
    """Where one tensor lies: `offset` bytes behind the start of its block."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Layout:
    """Both blocks of one shape.

    Args:
        shape: the shape of the execution.
        inputs: the tensors of the first block.
        outputs: those of the second.
        input_bytes: size of the first block.
        output_bytes: size of the second.
    """

    shape: Shape
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    input_bytes: int
    output_bytes: int

    @classmethod
    def of(cls, network: Network, shape: Shape) -> Layout:
        """The layout of one shape."""
        inputs, input_bytes = _packed(network.inputs, shape)
        outputs, output_bytes = _packed(network.outputs, shape)
        return cls(shape, inputs, outputs, input_bytes, output_bytes)


def _packed(tensors: Sequence[TensorType], shape: Shape) -> tuple[tuple[Place, ...], int]:
    places, end = [], 0
    for tensor in tensors:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        dims = tensor.shape(shape)
        places.append(Place(tensor.name, tensor.dtype, dims, start))
        end = start + math.prod(dims) * tensor.dtype.itemsize
    return tuple(places), end


def parse_graphs(text: str) -> list[Shape]:
    """The shapes of the config's parameter `graphs`: "1x64,1x128", or "1,2,4" without candidates.

    Raises:
        ValueError: it is something else.
    """
    shapes = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        users, cross, bucket = word.partition("x")
        if not users.isdecimal() or (cross and not bucket.isdecimal()) or int(users) < 1:
            raise ValueError(f"parameter graphs: {word!r} is not users x bucket, such as 4x256")
        shapes.append(Shape(int(users), int(bucket or 0)))
    return shapes
