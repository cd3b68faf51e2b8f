"""What tritonserver's verbose log says about CUDA Graphs: captured, launched, or executed plainly.

Nothing else tells: no metric counts launches, and a model without a single graph is as READY as one with all.
Two writers: Triton's C++ TensorRT backend, whose lines name the instance only, and our Python model, whose
lines name the shape too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from bireme.verify.gpu_network import Shape

__all__ = ["GraphLog", "Run", "parse"]

_NAME = r"(?P<instance>[A-Za-z0-9_.\-]+)"
_SHAPE = r"users (?P<users>\d+)(?:, bucket (?P<bucket>\d+))?"
# C++ (tensorrt_backend r24.10).
_CPP_CAPTURED = re.compile(rf"captured CUDA graph for {_NAME}, batch size (?P<users>\d+)")
_CPP_LAUNCH = re.compile(rf"is launching CUDA graph for {_NAME}")
_CPP_PLAIN = re.compile(rf"is being executed for {_NAME}")
# Ours (backends/python/dnn_gpu, bireme_runtime).
_CAPTURED = re.compile(rf"{_NAME}: captured CUDA graph, {_SHAPE}")
_LAUNCH = re.compile(rf"{_NAME}: launching CUDA graph, {_SHAPE}(?:, for (?P<real>\d+) users?)?")
_PLAIN = re.compile(rf"{_NAME}: plain execution, {_SHAPE}")
#: Something that every line of interest has: most of a verbose log is about something else.
_INTERESTING = ("CUDA graph", "plain execution", "is being executed for")
_INSTANCE = re.compile(r"(?P<model>.+?)_\d+(?:_\d+)?")


@dataclass(frozen=True)
class Run:
    """One execution.

    Args:
        instance: of the model, such as "shop_dnn_0_1".
        graph: whether a graph was launched.
        shape: what was executed, rows of padding included; None: the line does not say.
    """

    instance: str
    graph: bool
    shape: Shape | None = None


@dataclass
class GraphLog:
    """Everything that the log says about one model.

    Args:
        captures: instance → captured shape → how often; the bucket is 0 where the line does not say.
        runs: in the order of the log.
    """

    captures: dict[str, Counter[Shape]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)


def parse(lines: Iterable[str]) -> dict[str, GraphLog]:
    """Model → what its instances did.

    Args:
        lines: of the log of a tritonserver with --log-verbose=1.
    """
    logs: dict[str, GraphLog] = {}
    for line in lines:
        if not any(word in line for word in _INTERESTING):
            continue
        for pattern in (_CPP_CAPTURED, _CAPTURED):
            if match := pattern.search(line):
                captures = _log_of(logs, match["instance"]).captures
                captures.setdefault(match["instance"], Counter())[_shape(match)] += 1
        for pattern, graph in ((_CPP_LAUNCH, True), (_CPP_PLAIN, False), (_LAUNCH, True), (_PLAIN, False)):
            if match := pattern.search(line):
                shape = _shape(match) if "users" in pattern.groupindex else None
                runs = _log_of(logs, match["instance"]).runs
                runs.append(Run(match["instance"], graph, shape))
    return logs


def _shape(match: re.Match[str]) -> Shape:
    bucket = match["bucket"] if "bucket" in match.re.groupindex else None
    return Shape(int(match["users"]), int(bucket or 0))


def _log_of(logs: dict[str, GraphLog], instance: str) -> GraphLog:
    """The model's: instances are called `<model>_<group>_<index>`, or `<model>_<index>`."""
    match = _INSTANCE.fullmatch(instance)
    return logs.setdefault(match["model"] if match else instance, GraphLog())
