"""Models are made, exported and compiled once for the whole session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import pytest
from compiler_helpers import Served, make_spec
from compiler_models import MODELS
from compiler_parts import Made

from bireme.compiler.batchnorm import fold_batchnorm
from bireme.compiler.fold import fold
from bireme.compiler.graph import Graph
from bireme.compiler.load import SavedModel, load
from bireme.compiler.pipeline import Compiled, compile_model
from bireme.compiler.trim import trim
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
        graphs["trim"] = trim(graphs["load"])
        graphs["fold"] = fold(graphs["trim"])
        graphs["batchnorm"] = fold_batchnorm(graphs["fold"])
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
