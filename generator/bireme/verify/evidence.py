"""Judges a log: every instance has captured what the config asks for, and what was sent ran as a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bireme.verify.gpu_network import GpuNetwork, GraphShape, Shape
from bireme.verify.graph_log import GraphLog, Run

__all__ = ["Evidence", "judge", "with_shapes"]


@dataclass
class Evidence:
    """What the log proves about one network.

    Args:
        network: the model.
        planned: how many graphs its config asks for.
        captures: instance → captured graphs of the plan.
        launches: executed shape → graph launches.
        plain: executed shape → plain executions.
        unplaced: graph launches and plain executions whose shape the log does not say.
        failures: what is wrong, a sentence each.
    """

    network: str
    planned: int
    captures: dict[str, int] = field(default_factory=dict)
    launches: Counter[Shape] = field(default_factory=Counter)
    plain: Counter[Shape] = field(default_factory=Counter)
    unplaced: tuple[int, int] = (0, 0)
    failures: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """As JSON values."""
        counts = {"launches": self.launches, "plain": self.plain}
        return {
            "planned": self.planned,
            "captures": self.captures,
            **{
                name: [{"users": s.users, "bucket": s.bucket, "count": n} for s, n in sorted(counted.items())]
                for name, counted in counts.items()
            },
            "launches_of_unknown_shape": self.unplaced[0],
            "plain_of_unknown_shape": self.unplaced[1],
            "failures": self.failures,
        }


def judge(network: GpuNetwork, log: GraphLog, runs: Sequence[Run], sent: Sequence[Shape]) -> Evidence:
    """Compare a network's log with its config and with what was sent.

    Args:
        network: what its config asks for.
        log: captures since the server's start.
        runs: its executions since the server was ready; those before may warm up.
        sent: shapes that were surely executed as such: sent one after another, to the network itself.
    """
    evidence = Evidence(network.name, len(network.graphs))
    _count_captures(evidence, network, log.captures)
    for run in runs:
        if run.shape is None:
            launched, plain = evidence.unplaced
            evidence.unplaced = (launched + run.graph, plain + (not run.graph))
        else:
            (evidence.launches if run.graph else evidence.plain)[run.shape] += 1
    if not network.graphs:
        evidence.failures.append("its config asks for no CUDA Graph")
    elif not any(run.graph for run in runs):
        evidence.failures.append(f"not one CUDA Graph was launched in {len(runs)} executions")
    else:
        _check_runs(evidence, network, sent)
    return evidence


def with_shapes(network: GpuNetwork, runs: Sequence[Run], sent: Sequence[Shape]) -> list[Run]:
    """Runs of the C++ backend, whose lines do not say a shape, with the shapes of what was sent.

    Requests that were sent one after another ran in that order, one execution each; where the numbers
    differ, nothing can be said, and the runs stay as they are.
    """
    if len(runs) != len(sent) or any(run.shape is not None for run in runs):
        return list(runs)
    placed = []
    for run, shape in zip(runs, sent, strict=True):
        graph = network.graph_for(shape) if run.graph else None
        placed.append(Run(run.instance, run.graph, graph.shape if graph else shape))
    return placed


def _count_captures(evidence: Evidence, network: GpuNetwork, captures: Mapping[str, Counter[Shape]]) -> None:
    known = {shape.bucket for counted in captures.values() for shape in counted}
    by_bucket = network.backend == "python" or bool(known - {0})
    for instance, counted in sorted(captures.items()):
        missing = _missing(network.graphs, counted, by_bucket)
        evidence.captures[instance] = len(network.graphs) - len(missing)
        if missing:
            names = ", ".join(str(graph.shape) for graph in missing[:4]) + (", …" if len(missing) > 4 else "")
            evidence.failures.append(
                f"{instance} has not captured {len(missing)} graphs of its plan: {names}"
            )
    if network.graphs and len(captures) < network.instances:
        evidence.failures.append(
            f"{len(captures)} of {network.instances} instances have captured CUDA Graphs"
        )


def _missing(graphs: Sequence[GraphShape], counted: Mapping[Shape, int], by_bucket: bool) -> list[GraphShape]:
    """Graphs without a line. The C++ backend's only say users: as many are needed as there are graphs."""
    if by_bucket:
        return [graph for graph in graphs if not counted.get(graph.shape)]
    left = dict(counted)
    missing = []
    for graph in graphs:
        key = Shape(graph.users, 0)
        if left.get(key, 0):
            left[key] -= 1
        else:
            missing.append(graph)
    return missing


def _check_runs(evidence: Evidence, network: GpuNetwork, sent: Sequence[Shape]) -> None:
    for shape, count in sorted(evidence.plain.items()):
        graph = network.graph_for(shape)
        if graph is not None:
            evidence.failures.append(
                f"{shape} ran plainly {count} times, although the graph {graph.shape} is in its plan"
            )
    if evidence.unplaced[1] and network.covers_all:
        evidence.failures.append(
            f"{evidence.unplaced[1]} plain executions, although graphs cover every shape"
        )
    if not evidence.launches:
        return  # all of unknown shape
    for shape in sorted(set(sent)):
        graph = network.graph_for(shape)
        if graph is not None and not evidence.launches[graph.shape] and not evidence.plain[shape]:
            evidence.failures.append(f"{shape} was sent, and no launch of the graph {graph.shape} is logged")
