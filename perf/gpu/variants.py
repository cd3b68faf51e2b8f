"""Copies of emitted models that differ in their config: hard links for everything else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]

from baseline.repository import config_of

__all__ = ["copy_model", "one_by_one", "set_instances", "set_parameter", "variant"]

Edit = Callable[[Any], None]


def variant(source: Path, models: Sequence[str], folder: Path, *edits: Edit) -> Path:
    """A repository with some of another's models.

    Args:
        source: the repository.
        models: which of its models; the edits apply to the last.
        folder: the new repository; an older one is replaced.
        edits: change a model's `ModelConfig` in place.

    Returns:
        `folder`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in models:
        copy_model(source, name, folder, *(edits if name == models[-1] else ()))
    return folder


def copy_model(source: Path, model: str, folder: Path, *edits: Edit) -> None:
    """One model of `source`, in `folder`, with an edited config."""
    shutil.copytree(source / model, folder / model, copy_function=_link)
    if edits:
        config = config_of(source, model)
        for edit in edits:
            edit(config)
        path = folder / model / "config.pbtxt"
        path.unlink()  # a link: writing would change the original
        path.write_text(text_format.MessageToString(config), encoding="utf-8")


def set_instances(count: int) -> Edit:
    """As many instances in each group."""

    def edit(config: Any) -> None:
        for group in config.instance_group:
            group.count = count

    return edit


def one_by_one(config: Any) -> None:
    """No dynamic batching: every request runs by itself."""
    config.ClearField("dynamic_batching")


def set_parameter(name: str, value: str) -> Edit:
    """One string parameter."""

    def edit(config: Any) -> None:
        config.parameters[name].string_value = value

    return edit


def _link(original: str, copy: str) -> None:
    try:
        os.link(original, copy)
    except OSError:
        shutil.copyfile(original, copy)
