"""The features of a model: what its signature says, and what the spec adds (side, default, kind of text)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np

from bireme.compiler.load import SavedModel
from bireme.compiler.rules.sparse import meanings
from bireme.errors import ClientError, CompileError, SpecError
from bireme.requests import to_rows
from bireme.spec import BuildSpec
from bireme_runtime.plan import Feature

__all__ = ["check_task_names", "read_features", "symbolic_shapes"]

_DTYPES = ("string", "int32", "int64", "float32", "float64", "bool")


def read_features(model: SavedModel, spec: BuildSpec, needed: Iterable[str]) -> tuple[Feature, ...]:
    """The features that the outputs need, in signature order, user side first.

    Args:
        model: the original.
        spec: the build spec.
        needed: signature inputs that the served outputs read.

    Raises:
        SpecError: the spec names an input that does not exist, or a default that does not fit.
        CompileError: an input has a shape or dtype that cannot be served.
    """
    fields = ("user", "defaults", "text", "lengths", "padding")
    for field, names in ((field, getattr(spec, field)) for field in fields):
        for name in names:
            _check_name(field, name, list(model.features))
    for name in spec.padding:
        _check_padding(model, spec, name)
    for name in spec.text:
        if model.features[name].dtype.name != "string":
            dtype = model.features[name].dtype.name
            raise SpecError(f"text: '{name}'", f"is {dtype}, not a string", "leave it out of `text`")
    result = []
    owner = {part: composite.name for composite in model.composites.values() for part in composite.parts}
    for name in dict.fromkeys(owner.get(name, name) for name in needed):
        length = _length(model, name)
        padding = spec.padding.get(name)
        if name in spec.lengths:
            _check_fixed(name, length, spec.lengths[name])
            length = spec.lengths[name]
            text = model.features[name].dtype.name == "string"
            padding = ("" if text else 0) if padding is None else padding
        feature = Feature(
            name=name,
            side="user" if name in spec.user else "item",
            dtype=model.features[name].dtype.name,
            length=length,
            default=spec.defaults.get(name),
            text=spec.text.get(name, "utf8"),
            padding=model.composites[name].padding if name in model.composites else padding,
        )
        if feature.dtype not in _DTYPES:
            raise CompileError(
                f"input '{name}'", f"is {feature.dtype}", f"export it as one of {', '.join(_DTYPES)}"
            )
        _check_default(feature)
        result.append(feature)
    return tuple(sorted(result, key=lambda feature: feature.side != "user"))


def symbolic_shapes(model: SavedModel, names: Iterable[str]) -> dict[str, Any]:
    """Feature → shape of its rows, as in values.py; a part of a sparse feature → what it means."""
    shapes: dict[str, Any] = {}
    for name in names:
        if name in model.composites:
            shapes |= meanings(model.composites[name])
            continue
        shape = model.inputs[name].shape
        row = ("R",) if shape.rank == 1 else ("R", 1) if shape[1] == 1 else ("R", "L")
        shapes[name] = row if shape.rank < 3 else (*row, 1)
    return shapes


def check_task_names(tasks: Iterable[str]) -> None:
    """Refuse tasks whose names the dense network needs for its inputs.

    Raises:
        SpecError: naming the task.
    """
    for task in tasks:
        if task in ("user", "items") or not task:
            raise SpecError(
                f"task '{task}'", "cannot have this name", "give it another one under `outputs` in the spec"
            )


def _check_name(field: str, name: str, known: list[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"its inputs are: {', '.join(known)}"
        raise SpecError(f"{field}: '{name}'", "is not an input of the model", hint)


def _check_padding(model: SavedModel, spec: BuildSpec, name: str) -> None:
    where = f"padding: '{name}'"
    if name not in model.composites and (_length(model, name) or -1) == -1 and name not in spec.lengths:
        what = "is neither a sparse nor a ragged input, nor a sequence of a fixed length"
        raise SpecError(where, what, "leave it out of `padding`")
    dtype, padding = model.features[name].dtype.name, spec.padding[name]
    feature = Feature(name, "user", dtype, default=padding)
    if isinstance(padding, (list, dict)):
        raise SpecError(where, "must be a single value", "correct it in the spec")
    try:
        to_rows([feature], {"user": {name: padding}, "items": {"": [0]}})
    except ClientError as error:
        raise SpecError(where, error.message, "correct it in the spec") from None


def _length(model: SavedModel, name: str) -> int | None:
    """None for a single value, -1 for a sequence of any length, else its length."""
    shape = model.features[name].shape
    if shape.rank == 3 and shape[2] == 1:  # a sequence of vectors of one number, as DeepCTR has weights
        shape = shape[:2]
    if shape.rank not in (1, 2) or shape[0] is not None or 0 in shape:
        raise CompileError(
            f"input '{name}'",
            f"has shape {shape}; one row must be a single value or one sequence",
            "export the model with inputs of shape [None], [None, 1], [None, None] or [None, length]",
        )
    if shape.rank == 1 or shape[1] == 1:
        return None
    return -1 if shape[1] is None else int(shape[1])


def _check_fixed(name: str, found: int | None, wanted: int) -> None:
    """Refuse a fixed length for what is no sequence of any length.

    Raises:
        SpecError: naming the feature.
    """
    where = f"lengths: '{name}'"
    if found is None:
        raise SpecError(where, "is a single value, not a sequence", "leave it out of `lengths`")
    if found not in (-1, wanted):
        raise SpecError(where, f"has length {found} in the model", "leave it out of `lengths`")
    if wanted < 1:
        raise SpecError(where, "must be at least 1", "correct it in the spec")


def _check_default(feature: Feature) -> None:
    default, where = feature.default, f"defaults: '{feature.name}'"
    if default is None:
        return
    if isinstance(default, list) != (feature.length is not None):
        form = "a list" if feature.length is not None else "a single value"
        raise SpecError(where, f"must be {form}", "correct it in the spec")
    if feature.length is not None and feature.length not in (-1, len(default)):
        filled_up = feature.padding is not None
        if not filled_up or len(default) > feature.length:
            most = "at most " if filled_up else ""
            message = f"must hold {most}{feature.length} values, not {len(default)}"
            raise SpecError(where, message, "correct it in the spec")
    try:
        rows = to_rows([feature], {"user": {feature.name: default}, "items": {feature.name: [default]}})
    except ClientError as error:
        raise SpecError(where, error.message, "correct it in the spec") from None
    values = rows[feature.name]
    if values.ndim > 2:
        raise SpecError(where, "must be a plain list, not a list of lists", "correct it in the spec")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise SpecError(where, "must be finite", "correct it in the spec")
