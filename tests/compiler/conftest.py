"""Models are made, exported and compiled once for the whole session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from compiler_helpers import Served, make_spec, original_scores
from compiler_models import MODELS
from compiler_parts import Made

from bireme.compiler.batchnorm import fold_batchnorm
from bireme.compiler.fold import fold
from bireme.compiler.graph import Graph
from bireme.compiler.load import SavedModel, load
from bireme.compiler.merge import merge
from bireme.compiler.pipeline import Compiled, compile_model
from bireme.compiler.trim import trim
from bireme.compiler.unroll import unroll
from bireme.requests import Request
from bireme.spec import BuildSpec


class Example:
    """One model of the zoo; every stage is run when it is first asked for."""

    def __init__(self, made: Made, folder: Path) -> None:
        self.made = made
        self.folder = folder
        self.path = folder / "saved_model"
        made.export(self.path)

    @cached_property
    def spec(self) -> BuildSpec:
        return make_spec(self.path, self.made.user, **self.made.spec)

    @cached_property
    def original(self) -> SavedModel:
        return SavedModel(self.path)

    @cached_property
    def graphs(self) -> dict[str, Graph]:
        """Pass → graph, of the passes on TensorFlow's graph."""
        graphs = {"load": load(self.original, self.spec.outputs)}
        graphs["unroll"] = unroll(graphs["load"])
        graphs["trim"] = trim(graphs["unroll"])
        graphs["fold"] = fold(graphs["trim"])
        graphs["batchnorm"] = fold_batchnorm(graphs["fold"])
        graphs["merge"] = merge(graphs["batchnorm"])
        return graphs

    @cached_property
    def compiled(self) -> Compiled:
        return compile_model(self.spec, "cpu")

    @cached_property
    def served(self) -> Served:
        files = self.folder / "files"
        files.mkdir()
        return Served(self.compiled, files)

    @property
    def outputs(self) -> dict[str, str]:
        return dict(self.spec.outputs) or {name: name for name in self.original.outputs}


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Example]:
    """`zoo(name)`: the model of that name from compiler_models.py."""
    known: dict[str, Example] = {}

    def get(name: str) -> Example:
        if name not in known:
            known[name] = Example(MODELS[name](), tmp_path_factory.mktemp(name))
        return known[name]

    return get


@pytest.fixture
def export(tmp_path: Path) -> Callable[[Made], BuildSpec]:
    """Export a model of one test; returns the spec to compile it with."""

    def run(made: Made) -> BuildSpec:
        made.export(tmp_path / "saved_model")
        return make_spec(tmp_path / "saved_model", made.user, **made.spec)

    return run


@pytest.fixture
def parity(export: Callable[[Made], BuildSpec], tmp_path: Path) -> Callable[..., Compiled]:
    """`parity(made, more_requests)`: compile and compare with the original, beyond the build's own check."""

    def run(model: Made, requests: Sequence[Request] = ()) -> Compiled:
        spec = export(model)
        compiled = compile_model(spec, "cpu")
        assert max(compiled.differences.values()) < 1e-6
        served = Served(compiled, tmp_path / "files")
        original = SavedModel(spec.saved_model, padding=spec.padding)
        requests = [*served.requests([1, 7, 50], seed=3), *requests]
        outputs = {name: name for name in original.outputs}
        for request, scores in zip(requests, served.scores(requests), strict=True):
            for task, wanted in original_scores(original, compiled, request, outputs).items():
                scale = max(1.0, np.abs(wanted).max())
                np.testing.assert_allclose(scores[task], wanted, atol=1e-6 * scale, rtol=0)
        return compiled

    (tmp_path / "files").mkdir()
    return run
