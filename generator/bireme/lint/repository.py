"""Reads the models of a repository and applies every rule; needs no server, no GPU and no TensorFlow."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.errors import LintError
from bireme.lint.finding import Finding, Model, Rule
from bireme.lint.network import newest, profile_max, read_network
from bireme.lint.places import line_of, read_nodes
from bireme.lint.rules import RULES
from bireme.lint.settings import Settings

__all__ = ["READING", "lint_model", "lint_repository"]

_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
#: Findings of reading, where there is no message that a rule could look at.
READING = Rule(
    "C01",
    "error",
    "a config.pbtxt that does not parse, such as `dims` in a `graph_spec`, whose field is `dim`",
    lambda _: iter(()),
    "the model does not load",
    "correct it, or build the repository again",
)
#: What a parser's message holds → what to do.
_HINTS = (
    ("oneof", "an ensemble has no batcher of its own: put dynamic_batching into its steps' models"),
    ('"dims"', "the field is `dim` in graph_spec and `dims` in inputs and outputs"),
)


def lint_repository(repository: Path, settings: Settings | None = None) -> list[Finding]:
    """Everything found in a repository, model by model.

    Args:
        repository: the folder of the models.
        settings: what is known of the server.

    Raises:
        LintError: it is no folder, or holds no model.
    """
    try:
        folders = sorted(entry for entry in repository.iterdir() if entry.is_dir())
    except OSError as error:
        hint = "name a model repository: --repository"
        raise LintError(str(repository), f"cannot be read: {error.strerror}", hint) from None
    found = [folder for folder in folders if (folder / "config.pbtxt").is_file()]
    if not found:
        raise LintError(str(repository), "holds no model with a config.pbtxt", "build it: bireme build")
    names = frozenset(folder.name for folder in folders)
    read = {folder.name: _read(folder, settings or Settings()) for folder in found}
    models = {name: model for name, model in read.items() if isinstance(model, Model)}
    findings: list[Finding] = []
    for model in read.values():
        if isinstance(model, Finding):
            findings.append(model)
        else:
            findings += _apply(dataclasses.replace(model, others=models, folders=names))
    return findings


def lint_model(folder: Path, settings: Settings | None = None) -> list[Finding]:
    """What the rules find in one model's folder, without looking at its neighbours."""
    model = _read(folder, settings or Settings())
    return [model] if isinstance(model, Finding) else _apply(model)


def _read(folder: Path, settings: Settings) -> Model | Finding:
    """A model, or why it cannot be read."""
    file = f"{folder.name}/config.pbtxt"
    try:
        text = (folder / "config.pbtxt").read_text(encoding="utf-8")
        config = text_format.Parse(text, ModelConfig())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        detail = " ".join(str(error).split())
        fix = next((hint for words, hint in _HINTS if words in detail), READING.fix)
        where = f"{folder.name}: config.pbtxt"
        line = error.GetLine() if isinstance(error, text_format.ParseError) else None
        return Finding(READING.code, READING.severity, where, f"cannot be read: {detail}", fix, file, line)
    version = newest(folder)
    shapes, types = read_network(version)
    return Model(
        name=folder.name,
        config=config,
        text=_COMMENT.sub("", text),
        shapes=shapes,
        types=types,
        profile_max=profile_max(version),
        folder=folder,
        settings=settings,
    )


def _apply(model: Model) -> list[Finding]:
    """What the rules find, each with its line."""
    findings = [finding for rule in RULES for finding in rule.findings(model)]
    if not findings:
        return []
    # Comments are blanked, not cut out, so that lines keep their numbers.
    nodes = read_nodes(model.text)
    file = f"{model.name}/config.pbtxt"
    return [
        dataclasses.replace(finding, file=file, line=line_of(finding.where.partition(": ")[2], nodes))
        for finding in findings
    ]
