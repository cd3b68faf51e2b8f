"""The dense side alone: a Keras or TensorFlow function of embedded tensors → ONNX, row-wise and lifted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import tensorflow as tf
from compiler_parts import Module

from bireme.compiler.batchnorm import fold_batchnorm
from bireme.compiler.cut.split import Boundary
from bireme.compiler.dense import runner, to_onnx
from bireme.compiler.fold import fold
from bireme.compiler.graph import Graph
from bireme.compiler.load import SavedModel, load
from bireme.compiler.rows.rows_first import rows_first
from bireme.compiler.rows.user_once import user_once
from bireme.compiler.trim import trim
from bireme.compiler.unroll import unroll
from bireme_runtime.plan import Side

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass
class Dense:
    """A dense network whose inputs are already embedded.

    Args:
        inputs: name → (side, shape behind the row dimension), all float32.
        function: tensors by name → score [rows] or [rows, 1], or several by task.
        parts: what the function captures.
        listwise: whether the rows are one list.
    """

    inputs: dict[str, tuple[Side, tuple[int, ...]]]
    function: Callable[..., Any]
    parts: dict[str, Any] = field(default_factory=dict)
    listwise: bool = False

    @classmethod
    def of_keras(
        cls, build: Callable[..., Any], seed: int = 1, **inputs: tuple[Side, tuple[int, ...]]
    ) -> Dense:
        """`build` makes the outputs from Keras inputs; all weights are random."""
        symbols = {n: keras.Input(shape, name=n, dtype="float32") for n, (_, shape) in inputs.items()}
        model = keras.Model(symbols, build(**symbols))
        rng = np.random.default_rng(seed)
        for variable in model.variables:
            if variable.dtype == "float32":
                values = rng.normal(0.0, 0.4, variable.shape)
                positive = "variance" in variable.path or "gamma" in variable.path
                variable.assign(np.abs(values) + 0.5 if positive else values)
        return cls(inputs, lambda **tensors: model(tensors), {"model": model})

    def export(self, folder: Path) -> None:
        """As a SavedModel."""
        module = Module(**self.parts)

        def call(**tensors: Any) -> dict[str, Any]:
            made = self.function(**tensors)
            return made if isinstance(made, dict) else {"score": made}

        specs = {n: tf.TensorSpec([None, *shape], tf.float32, n) for n, (_, shape) in self.inputs.items()}
        module.call = tf.function(call, autograph=False).get_concrete_function(**specs)
        tf.saved_model.save(module, str(folder), signatures=module.call)


class DenseChain:
    """A dense network through the passes, lazily.

    Args:
        dense: the network.
        folder: where its SavedModel goes.
    """

    def __init__(self, dense: Dense, folder: Path) -> None:
        self.dense = dense
        dense.export(folder)
        self.original = SavedModel(folder)
        self.boundaries: list[Boundary] = []
        self.widths: dict[Side, int] = {"user": 0, "item": 0}
        for name, (side, shape) in dense.inputs.items():
            width = int(np.prod(shape, dtype=int))
            self.boundaries.append(Boundary(name, "", side, self.widths[side], width, shape, ""))
            self.widths[side] += width

    @cached_property
    def graph(self) -> Graph:
        """After the passes on TensorFlow's graph."""
        return fold_batchnorm(fold(trim(unroll(load(self.original, {})))))

    @cached_property
    def rowwise(self) -> onnx.ModelProto:
        user = [boundary.name for boundary in self.boundaries if boundary.side == "user"]
        return rows_first(to_onnx(self.graph), user)

    @cached_property
    def lifted(self) -> onnx.ModelProto:
        return user_once(
            self.rowwise,
            self.boundaries,
            self.widths["user"],
            self.widths["item"],
            "float32",
            self.dense.listwise,
        )

    def halves(self, users: int, candidates: int, seed: int = 0) -> Arrays:
        """`user` and `items`."""
        rng = np.random.default_rng(seed)
        return {
            "user": rng.normal(size=(users, self.widths["user"])).astype(np.float32),
            "items": rng.normal(size=(users, candidates, self.widths["item"])).astype(np.float32),
        }

    def rows(self, halves: Arrays) -> Arrays:
        """The same as rows, by input."""
        users, candidates, _ = halves["items"].shape
        repeated = np.repeat(halves["user"][:, None], candidates, axis=1)
        feeds = {}
        for boundary in self.boundaries:
            source = repeated if boundary.side == "user" else halves["items"]
            columns = source[..., boundary.offset : boundary.offset + boundary.width]
            feeds[boundary.name] = columns.reshape(users * candidates, *boundary.shape)
        return feeds

    def expected(self, halves: Arrays) -> Arrays:
        """The original's scores [users, candidates]; a listwise model sees one user's rows at a time."""
        users, candidates, _ = halves["items"].shape
        each = [{name: value[u : u + 1] for name, value in halves.items()} for u in range(users)]
        parts = [self.original.predict(self.rows(one)) for one in (each if self.dense.listwise else [halves])]
        return {
            task: np.concatenate([part[task].reshape(-1) for part in parts]).reshape(users, candidates)
            for task in parts[0]
        }

    def check(self, tolerance: float = 1e-5) -> None:
        """Lifted scores are the original's for any users and candidates, whatever stands behind them."""
        run = runner(self.lifted)
        for users, candidates in ((1, 1), (1, 7), (3, 7), (1, 64)):
            halves = self.halves(users, candidates, seed=candidates)
            found = run(halves)
            wanted = self.expected(halves)
            filler = np.random.default_rng(1).normal(size=(users, 5, self.widths["item"])).astype(np.float32)
            filler[:, ::2] = 1e30
            padded = run({"user": halves["user"], "items": np.concatenate([halves["items"], filler], axis=1)})
            for task, scores in found.items():
                expected = wanted[task]
                assert np.isfinite(expected).all()
                assert candidates == 1 or np.ptp(expected) > 1e-3, "the scores tell nothing apart"
                scale = max(1.0, float(np.abs(expected).max()))
                np.testing.assert_allclose(scores, expected, rtol=0, atol=tolerance * scale)
                if self.dense.listwise:
                    continue
                np.testing.assert_allclose(
                    padded[task][:, :candidates], scores, rtol=0, atol=tolerance * scale, err_msg="padding"
                )
