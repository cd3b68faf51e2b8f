"""Parameters of the gpu-python target's networks, which Triton passes on without looking at them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bireme.lint.finding import Issue, Model, Rule

__all__ = ["GPU_PYTHON_RULES"]

_GRAPHS = re.compile(r"\d+(x\d+)?(,\d+(x\d+)?)*")
_NUMBERS = re.compile(r"\d+(,\d+)*")


def _is_ours(model: Model) -> bool:
    return model.backend == "python" and model.parameter("graphs") is not None


def _ranks(model: Model) -> bool:
    return any(-1 in tensor.dims for tensor in model.config.input)


def _unreadable(model: Model) -> Iterator[Issue]:
    if not _is_ours(model):
        return
    graphs, lanes = model.parameter("graphs") or "", model.parameter("lanes")
    if not _GRAPHS.fullmatch(graphs) or any(("x" in part) != _ranks(model) for part in graphs.split(",")):
        form = "1x64,1x128,2x64" if _ranks(model) else "1,2,4"
        yield Issue(
            "parameters[graphs]", f"is '{graphs}', which is no list of graphs", f"write them as {form}"
        )
    if not _NUMBERS.fullmatch(model.parameter("buckets") or ""):
        yield Issue("parameters[buckets]", "is no list of candidate counts", "write them as 64,128")
    if lanes is not None and not (lanes.isdecimal() and 1 <= int(lanes) <= 8):
        yield Issue("parameters[lanes]", f"is '{lanes}', which is no number of contexts", "write 1 to 8")


def _captured(model: Model) -> list[tuple[int, int]]:
    """(users, bucket); bucket 0 without candidates. Nothing if it cannot be read: `_unreadable` says so."""
    if not _is_ours(model) or next(_unreadable(model), None) is not None:
        return []
    parts = [part.split("x") for part in (model.parameter("graphs") or "").split(",")]
    return [(int(part[0]), int(part[1]) if len(part) > 1 else 0) for part in parts]


def _buckets(model: Model) -> list[int]:
    return [int(part) for part in (model.parameter("buckets") or "").split(",")] if _ranks(model) else [0]


def _largest(model: Model) -> Iterator[Issue]:
    graphs = _captured(model)
    if not graphs:
        return
    most = model.config.max_batch_size
    for bucket in _buckets(model):
        largest = max((users for users, of in graphs if of == bucket), default=0)
        if largest < most:
            what = f"bucket {bucket}" if bucket else "users"
            yield Issue(
                "parameters[graphs]",
                f"captures at most {largest} users of max_batch_size {most} for {what}: larger batches run"
                " in several parts, or plainly",
                f"add {most}{f'x{bucket}' if bucket else ''}, or build the repository again",
            )


def _outside(model: Model) -> Iterator[Issue]:
    buckets, most = _buckets(model) if _captured(model) else [], model.config.max_batch_size
    for users, bucket in _captured(model):
        if bucket not in buckets or not 1 <= users <= most:
            yield Issue(
                "parameters[graphs]",
                f"has {users} users with {bucket} candidates, which do not occur: the model does not load",
                "keep to `buckets` and max_batch_size",
            )


def _not_ragged(model: Model) -> Iterator[Issue]:
    if not _is_ours(model):
        return
    for tensor in model.config.input:
        if -1 in tensor.dims and not tensor.allow_ragged_batch:
            yield Issue(
                f"input[{tensor.name}]",
                "is not ragged: only requests with equal numbers of candidates are merged",
                "set allow_ragged_batch: true",
            )


GPU_PYTHON_RULES = (
    Rule(
        "P01",
        "error",
        "gpu-python: `graphs`, `buckets` or `lanes` that cannot be read",
        _unreadable,
        "the model does not load",
        "write lists as the build does",
    ),
    Rule(
        "P02",
        "error",
        "gpu-python: `max_batch_size` not captured for a bucket",
        _largest,
        "larger batches run in parts, or plainly",
        "add the largest batch",
    ),
    Rule(
        "P03",
        "error",
        "gpu-python: graphs that no execution can use",
        _outside,
        "the model does not load",
        "keep to `buckets` and `max_batch_size`",
    ),
    Rule(
        "P04",
        "warning",
        "gpu-python: candidates that are not ragged",
        _not_ragged,
        "hardly any requests merge",
        "set `allow_ragged_batch: true`",
    ),
)
