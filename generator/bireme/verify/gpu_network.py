"""The dense networks of a repository that run on a GPU: what they take, which CUDA Graphs they must have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInstanceGroup

from bireme.errors import VerifyError

__all__ = ["GpuNetwork", "GraphShape", "Shape", "Tensor", "gpu_networks", "read_config"]

_DTYPES = {"TYPE_FP16": np.float16, "TYPE_FP32": np.float32, "TYPE_INT32": np.int32, "TYPE_INT64": np.int64}


class Shape(NamedTuple):
    """Of one execution: users, and the candidates of each; bucket 0: a network that knows no candidates."""

    users: int
    bucket: int

    def __str__(self) -> str:
        return f"{self.users} x {self.bucket}" if self.bucket else str(self.users)


class GraphShape(NamedTuple):
    """One captured shape, which runs `fewest`..`users` users."""

    fewest: int
    users: int
    bucket: int

    @property
    def shape(self) -> Shape:
        """What it executes, rows of padding included."""
        return Shape(self.users, self.bucket)


class Tensor(NamedTuple):
    """An input: dims leave the users out, -1 stands for the candidates."""

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int, ...]


@dataclass(frozen=True)
class GpuNetwork:
    """One model of a repository.

    Args:
        name: of the model.
        backend: who executes the plan: Triton's C++ backend, or our Python model.
        inputs: what it takes.
        outputs: their names.
        max_users: users that one execution may hold.
        buckets: candidates of its shapes, ascending; (0,): it knows no candidates.
        graphs: what its config asks to capture, ascending.
        instances: how many on each GPU.
    """

    name: str
    backend: Literal["tensorrt", "python"]
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    max_users: int
    buckets: tuple[int, ...]
    graphs: tuple[GraphShape, ...]
    instances: int

    def graph_for(self, shape: Shape) -> GraphShape | None:
        """The graph that must run a shape; None: none was asked for."""
        fitting = [g for g in self.graphs if g.bucket == shape.bucket and g.fewest <= shape.users <= g.users]
        return min(fitting, key=lambda graph: graph.users, default=None)

    @property
    def covers_all(self) -> bool:
        """Whether no shape that the batcher can form lacks a graph."""
        users = range(1, self.max_users + 1)
        return all(self.graph_for(Shape(n, bucket)) for n in users for bucket in self.buckets)


def gpu_networks(repository: Path, models: Sequence[str], buckets: Sequence[int]) -> list[GpuNetwork]:
    """Those among a repository's models, by what their config.pbtxt says.

    Args:
        repository: the model repository.
        models: names of the models of one ensemble, from its manifest.
        buckets: of the ensemble.

    Raises:
        VerifyError: a config cannot be read.
    """
    found = []
    for model in models:
        config = read_config(repository / model / "config.pbtxt")
        if config.platform == "tensorrt_plan" or config.backend == "tensorrt":
            found.append(_network(config, "tensorrt", _of_specs(config), buckets))
        elif config.backend == "python" and "graphs" in config.parameters:
            text = config.parameters["graphs"].string_value
            found.append(_network(config, "python", _of_parameter(model, text), buckets))
    return found


def read_config(path: Path) -> ModelConfig:
    """A config.pbtxt.

    Raises:
        VerifyError: it cannot be read.
    """
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise VerifyError(str(path), f"cannot be read: {error}", "run `bireme build` again") from None


def _network(
    config: ModelConfig,
    backend: Literal["tensorrt", "python"],
    graphs: Sequence[GraphShape],
    buckets: Sequence[int],
) -> GpuNetwork:
    inputs = tuple(
        Tensor(entry.name, np.dtype(_DTYPES[DataType.Name(entry.data_type)]), tuple(entry.dims))
        for entry in config.input
    )
    ranks = any(-1 in tensor.dims for tensor in inputs)
    groups = [g for g in config.instance_group if g.kind in (ModelInstanceGroup.KIND_GPU, 0)]
    return GpuNetwork(
        name=config.name,
        backend=backend,
        inputs=inputs,
        outputs=tuple(entry.name for entry in config.output),
        max_users=max(1, config.max_batch_size),
        buckets=tuple(buckets) if ranks else (0,),
        graphs=tuple(sorted(graphs)),
        instances=sum(group.count for group in groups or config.instance_group) or 1,
    )


def _of_specs(config: ModelConfig) -> list[GraphShape]:
    """`graph_spec` entries; the candidates are where an input's dims have -1."""
    places = [(entry.name, list(entry.dims).index(-1)) for entry in config.input if -1 in entry.dims]
    graphs = []
    for spec in config.optimization.cuda.graph_spec:
        bucket = 0
        if places:
            name, position = places[0]
            bucket = spec.input[name].dim[position] if name in spec.input else 0
        bound = spec.graph_lower_bound
        # Without the inputs in it, Triton ignores a bound: exact sizes only.
        fewest = bound.batch_size if bound.batch_size and bound.input else spec.batch_size
        graphs.append(GraphShape(max(1, fewest), max(1, spec.batch_size), bucket))
    return graphs


def _of_parameter(model: str, text: str) -> list[GraphShape]:
    """The parameter `graphs` of our Python model: "1x64,2x64", or "1,2" without candidates."""
    shapes = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        users, cross, bucket = word.partition("x")
        if not users.isdecimal() or (cross and not bucket.isdecimal()):
            message = f"its parameter graphs has {word!r}, which is not users x bucket"
            raise VerifyError(model, message, "run `bireme build` again")
        shapes.append(Shape(int(users), int(bucket or 0)))
    graphs = []
    for candidates in sorted({shape.bucket for shape in shapes}):
        sizes = sorted({shape.users for shape in shapes if shape.bucket == candidates})
        # The next larger one takes what lies between.
        graphs += [GraphShape(below + 1, most, candidates) for below, most in pairwise([0, *sizes])]
    return graphs
