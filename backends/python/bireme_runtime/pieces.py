"""The step of a feature plan that runs a piece of the original model in another engine, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Subgraph", "SubgraphInput", "SubgraphOutput", "piece_ends"]


@dataclass(frozen=True)
class SubgraphInput:
    """What a subgraph's tensor is fed with: a source, as [rows], or for `rank` 2 [rows, 1 or L].

    Args:
        tensor: its name in the subgraph.
        source: a feature or a step.
        rank: dimensions.
        rows: the feature's values index a table of so many rows inside the subgraph; 0: none that is known.
    """

    tensor: str
    source: str
    rank: int
    rows: int = 0


@dataclass(frozen=True)
class SubgraphOutput:
    """A tensor that a subgraph gives: ids [rows] or [rows, L], or columns [rows, …] at `offset`.

    Args:
        tensor: its name in the subgraph.
        name: of the ids, as other steps name them; "" for columns.
        about: what it is made of, for errors.
        offset: first column.
        width: columns a row; 0 for ids.
    """

    tensor: str
    name: str
    about: str
    offset: int = 0
    width: int = 0


@dataclass(frozen=True)
class Subgraph:
    """A piece of the original model that no other step does, run by another engine.

    Args:
        name: of the step.
        engine: "onnx": ONNX Runtime; "tensorflow": TensorFlow itself, which is slow and large.
        file: the graph.
        side: "user": a row is a user; "item": a row is a candidate, user sources are repeated.
        inputs: what it is fed with.
        outputs: what it gives.
        tables: for TensorFlow: (placeholder of a lookup table, constant of its keys, of its values); keys "":
            a variable.
    """

    name: str
    engine: Literal["onnx", "tensorflow"]
    file: str
    side: Literal["user", "item"]
    inputs: tuple[SubgraphInput, ...]
    outputs: tuple[SubgraphOutput, ...]
    tables: tuple[tuple[str, str, str], ...] = ()
    op: Literal["subgraph"] = "subgraph"


def piece_ends(values: Mapping[str, Any]) -> dict[str, Any]:
    """`inputs` and `outputs` of a subgraph step as JSON values, read back."""
    return {
        "inputs": tuple(SubgraphInput(**entry) for entry in values["inputs"]),
        "outputs": tuple(SubgraphOutput(**entry) for entry in values["outputs"]),
    }
