"""Ensembles: what is wrong between steps, of which Triton sees little at load and says less.

Read in core's src/model_config_utils.cc and src/ensemble_scheduler; "served" was seen on tritonserver 24.10.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType

from bireme.lint.ensembles import hops, steps
from bireme.lint.finding import Issue, Model, Rule

__all__ = ["ENSEMBLE_RULES"]


def _unknown_model(model: Model) -> Iterator[Issue]:
    for step in steps(model):
        name = step.settings.model_name
        if model.others and step.model is None and name not in model.folders:
            yield Issue(
                f"{step.place}.model_name",
                f"is '{name}', which is not in this repository" + _near(name, model.folders),
                "correct the name, or give the server the other repository as well",
            )
        version = step.settings.model_version
        if step.model is not None and version > 0:
            known = [int(path.name) for path in step.model.versions]
            if known and version not in known:
                yield Issue(
                    f"{step.place}.model_version",
                    f"is {version}, and {name} has {', '.join(map(str, known))}",
                    "write -1 for the latest, or a version that exists",
                )


def _wiring(model: Model) -> Iterator[Issue]:
    """Tensors that nobody writes or reads, names that the step's model does not have."""
    if not model.config.HasField("ensemble_scheduling"):
        return
    written = {tensor.name for tensor in model.config.input}
    read = {tensor.name for tensor in model.config.output}
    for step in steps(model):
        written |= set(step.settings.output_map.values())
        read |= set(step.settings.input_map.values())
    for step in steps(model):
        for inner, outer in sorted(step.settings.input_map.items()):
            if outer not in written:
                yield Issue(
                    f"{step.place}.input_map[{inner}]",
                    f"takes '{outer}', which no step writes" + _near(outer, written),
                    "name an input of the ensemble or an output of a step",
                )
        for inner, outer in sorted(step.settings.output_map.items()):
            if outer not in read:
                yield Issue(
                    f"{step.place}.output_map[{inner}]",
                    f"writes '{outer}', which nobody reads" + _near(outer, read),
                    "read it, or leave it out of the map",
                )
    for tensor in model.config.input:
        if tensor.name not in {o for step in steps(model) for o in step.settings.input_map.values()}:
            yield Issue(f"input[{tensor.name}]", "is read by no step", "map it, or remove it")
    for tensor in model.config.output:
        if tensor.name not in written:
            yield Issue(
                f"output[{tensor.name}]", "is written by no step" + _near(tensor.name, written), "map it"
            )
    yield from _inner_names(model)


def _inner_names(model: Model) -> Iterator[Issue]:
    for step in steps(model):
        if step.model is None:
            continue
        takes = {tensor.name: tensor.optional for tensor in step.model.config.input}
        makes = {tensor.name for tensor in step.model.config.output}
        for field, names, have in (
            ("input_map", step.settings.input_map, set(takes)),
            ("output_map", step.settings.output_map, makes),
        ):
            for name in sorted(set(names) - have) if have else ():
                yield Issue(
                    f"{step.place}.{field}[{name}]",
                    f"names '{name}', which {step.model.name} does not have" + _near(name, have),
                    f"name a tensor of {step.model.name}",
                )
        for name, optional in takes.items():
            if not optional and name not in step.settings.input_map:
                yield Issue(
                    f"{step.place}.input_map", f"lacks '{name}', which {step.model.name} needs", "map it"
                )


def _optional(model: Model) -> Iterator[Issue]:
    for hop in hops(model):
        (source, given), (target, taken) = hop.source, hop.target
        if source is model and given.optional and not taken.optional and not _state(model, hop.tensor):
            yield Issue(
                f"{hop.place}.input_map[{taken.name}]",
                f"hands the optional input '{hop.tensor}' to '{taken.name}', which {target.name} requires:"
                " each request without it fails",
                f"make it optional in {target.name} too, or required in the ensemble",
            )


def _state(model: Model, tensor: str) -> bool:
    """Whether it is the state of `--user-ahead`: the first step refuses requests without it, by name."""
    return f'"name": "{tensor}"' in (model.parameter("bireme_state") or "")


def _batch_size(model: Model) -> Iterator[Issue]:
    for step in steps(model):
        if step.model is None:
            continue
        most = step.model.config.max_batch_size
        if most and most < model.config.max_batch_size:
            yield Issue(
                "max_batch_size",
                f"is {model.config.max_batch_size}, and step {step.model.name} takes {most}",
                f"write at most {most}, or raise it in {step.model.name}",
            )


def _types(model: Model) -> Iterator[Issue]:
    for hop in hops(model):
        (source, given), (target, taken) = hop.source, hop.target
        if given.data_type != taken.data_type:
            yield Issue(
                f"{hop.place}.input_map[{taken.name}]",
                f"'{hop.tensor}' is {DataType.Name(given.data_type)} from {source.name} and"
                f" {DataType.Name(taken.data_type)} in {target.name}",
                "give both the same type",
            )


def _whole(model: Model, tensor: Any) -> Sequence[int]:
    """Dims with the batch in front, where there is one."""
    return [*([-1] if model.config.max_batch_size else []), *tensor.dims]


def _shapes(model: Model) -> Iterator[Issue]:
    for hop in hops(model):
        (source, given), (target, taken) = hop.source, hop.target
        if {given.data_type} != {taken.data_type} or given.HasField("reshape") or taken.HasField("reshape"):
            continue
        left, right = _whole(source, given), _whole(target, taken)
        if len(left) != len(right):
            # Triton puts a 1 in front where only one of the two batches.
            left, right = list(given.dims), list(taken.dims)
        fit = len(left) == len(right) and all(
            a == b or -1 in (a, b) for a, b in zip(left, right, strict=True)
        )
        if not fit:
            yield Issue(
                f"{hop.place}.input_map[{taken.name}]",
                f"'{hop.tensor}' has dims {list(given.dims)} from {source.name} and {list(taken.dims)} in"
                f" {target.name}",
                "give both the same dims",
            )


def _open_dims(model: Model) -> Iterator[Issue]:
    for hop in hops(model):
        (source, given), (target, taken) = hop.source, hop.target
        pairs = list(zip(given.dims, taken.dims, strict=False))
        if len(given.dims) != len(taken.dims) or source is model:
            continue
        fixed = any(a == -1 and b != -1 for a, b in pairs)
        if fixed or sum(a == b == -1 for a, b in pairs) > 1:
            yield Issue(
                f"{hop.place}.input_map[{taken.name}]",
                f"'{hop.tensor}' is {list(given.dims)} from {source.name} and {list(taken.dims)} in"
                f" {target.name}: what does not fit shows with the first request",
                "write the sizes that are known on both sides",
            )


def _forbidden(model: Model) -> Iterator[Issue]:
    if not model.ensemble:
        return
    for name in ("instance_group", "model_warmup"):
        if len(getattr(model.config, name)):
            yield Issue(name, "is not allowed in an ensemble", "move it to the models of its steps")
    if model.config.HasField("optimization"):
        yield Issue("optimization", "is not allowed in an ensemble", "move it to the models of its steps")


def _near(name: str, known: Any) -> str:
    found = difflib.get_close_matches(name, sorted(known), 1)
    return f"; '{found[0]}' is near" if found else ""


ENSEMBLE_RULES = (
    Rule(
        "E01",
        "error",
        "a step whose model or version is not in the repository",
        _unknown_model,
        "the ensemble does not load",
        "correct the name, or load the other repository as well",
    ),
    Rule(
        "E02",
        "error",
        "tensors that nobody writes or reads; names that a step's model does not have",
        _wiring,
        "the ensemble does not load, and the message does not name the step (served; server#7366)",
        "correct the name: the nearest one is shown",
    ),
    Rule(
        "E03",
        "error",
        "an optional input of the ensemble that a step's model requires",
        _optional,
        "loads, and each request without it fails (served; server#8288)",
        "make both optional, or both required",
    ),
    Rule(
        "E04",
        "error",
        "`max_batch_size` above that of a step",
        _batch_size,
        "the ensemble does not load (served)",
        "keep to the smallest of the steps",
    ),
    Rule(
        "E05",
        "error",
        "a tensor of one data type where it is written and another where it is read",
        _types,
        "the ensemble does not load (served)",
        "give both the same type",
    ),
    Rule(
        "E06",
        "error",
        "a tensor of one shape where it is written and another where it is read",
        _shapes,
        "the ensemble does not load (served)",
        "give both the same dims",
    ),
    Rule(
        "E07",
        "warning",
        "-1 where a size is wanted, or several -1 on both sides, between two steps",
        _open_dims,
        "loads; compared only when a request runs (served)",
        "write the sizes that are known on both sides",
    ),
    Rule(
        "E08",
        "error",
        "`instance_group`, `optimization` or `model_warmup` in an ensemble",
        _forbidden,
        "the ensemble does not load (served; server#6326)",
        "move it to the models of its steps",
    ),
)
