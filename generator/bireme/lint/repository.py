"""Reads the models of a repository and applies every rule; needs no server, no GPU and no TensorFlow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.errors import LintError
from bireme.lint.finding import Finding, Model
from bireme.lint.rules import RULES
from bireme_runtime.passport import ONNX, PASSPORT

__all__ = ["lint_model", "lint_repository"]

_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)
#: Findings of reading, where there is no message that a rule could look at.
UNREADABLE = "C01"


def lint_repository(repository: Path) -> list[Finding]:
    """Everything found in a repository, model by model.

    Raises:
        LintError: it is no folder, or holds no model.
    """
    try:
        folders = sorted(entry for entry in repository.iterdir() if entry.is_dir())
    except OSError as error:
        hint = "name a model repository: --repository"
        raise LintError(str(repository), f"cannot be read: {error.strerror}", hint) from None
    models = [folder for folder in folders if (folder / "config.pbtxt").is_file()]
    if not models:
        raise LintError(str(repository), "holds no model with a config.pbtxt", "build it: bireme build")
    return [finding for folder in models for finding in lint_model(folder)]


def lint_model(folder: Path) -> list[Finding]:
    """What all rules find in one model's folder."""
    try:
        text = (folder / "config.pbtxt").read_text(encoding="utf-8")
        config = text_format.Parse(text, ModelConfig())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        detail = " ".join(str(error).split())
        fix = "correct it (graph_spec has `dim`, inputs have `dims`), or build the repository again"
        where = f"{folder.name}: config.pbtxt"
        return [Finding(UNREADABLE, "error", where, f"cannot be read: {detail}", fix)]
    newest = _newest(folder)
    model = Model(folder.name, config, _COMMENT.sub("", text), _ranks(newest), _profile_max(newest))
    return [finding for rule in RULES for finding in rule.findings(model)]


def _newest(folder: Path) -> Path:
    """The version folder that is served."""
    versions = sorted((int(path.name), path) for path in folder.iterdir() if path.name.isdecimal())
    return versions[-1][1] if versions else folder


def _profile_max(version: Path) -> Mapping[str, Sequence[int]]:
    """Input → largest shape, of passport.json; a damaged one is refused by `bireme serve`."""
    try:
        profile = json.loads((version / PASSPORT).read_text(encoding="utf-8"))["profile"]
        return {str(name): [int(size) for size in shapes["max"]] for name, shapes in profile.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def _ranks(version: Path) -> Mapping[str, int]:
    """Input → rank, of model.onnx; nothing without one, or without the package `onnx`."""
    path = version / ONNX
    if not path.is_file():
        return {}
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        return {}
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except (OSError, DecodeError):
        return {}  # whoever builds the engine, or starts the server, says so
    constants = {tensor.name for tensor in graph.initializer}
    return {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in graph.input
        if value.name not in constants
    }
