"""What `bireme verify` found, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bireme.verify.evidence import Evidence
from bireme.verify.orders import GRAPH_TOLERANCE, Ordered
from bireme.verify.result import Verified

__all__ = ["as_text"]


def as_text(found: Verified, clients: int) -> str:
    """Some lines: scores; sequences and CUDA Graphs of a GPU repository; then what is wrong, or allowed."""
    lines = []
    for result in found.parity:
        several = f" ({result.together} of several users)" if result.together else ""
        counts = f"N {min(result.counts)} to {max(result.counts)}" if result.counts else "none compared"
        lines.append(
            f"{result.protocol}: {result.requests:,} requests{several} from {clients} clients,"
            f" {counts}, {result.scores:,} scores:"
            f" largest difference {result.max_difference:.1e} (relative {result.max_relative:.1e})"
        )
    if found.ordered is not None:
        lines += _ordered(found.ordered, "the original model's scores", None)
    for network in found.networks:
        lines += _ordered(network.ordered, "execution without CUDA Graphs", GRAPH_TOLERANCE)
        lines += _graphs(network.evidence)
    lines += found.notes
    if found.failures:
        lines += [f"FAILED {failure.where}: {failure.message}" for failure in found.failures]
    else:
        lines += _limits(found)
    return "\n".join(lines)


def _limits(found: Verified) -> Iterator[str]:
    by_limit: dict[Any, list[str]] = {}
    for task, limit in found.parity[0].tolerances.items():
        by_limit.setdefault(limit, []).append(task)
    for limit, tasks in by_limit.items():
        of = f" of {', '.join(tasks)}" if len(by_limit) > 1 else ""
        yield f"served scores{of} equal the original model's (tolerance {limit.value:.3g}: {limit.reason})"


def _ordered(ordered: Ordered, reference: str, allowed: float | None) -> Iterator[str]:
    kinds = ", ".join(f"{name} {count}" for name, count in ordered.orders.items())
    limit = f", {allowed:g} allowed" if allowed is not None else ""
    yield (
        f"{ordered.model} in sequences ({kinds}) against {reference}: {ordered.bit_equal:,} of"
        f" {ordered.compared:,} answers equal bit by bit, largest difference {ordered.largest:.1e} of the"
        f" largest value{limit}; of {ordered.repeated:,} repeated requests {ordered.changed:,} changed"
    )
    yield from (f"{ordered.model}: {note}" for note in ordered.notes)


def _graphs(evidence: Evidence) -> Iterator[str]:
    captured = ", ".join(f"{instance} {count}" for instance, count in evidence.captures.items()) or "none"
    yield f"{evidence.network}: {evidence.planned} CUDA Graphs in its plan; captured: {captured}"
    shapes = sorted({*evidence.launches, *evidence.plain})
    if shapes:
        yield "  users x candidates   graph launches   plain executions"
    for shape in shapes:
        yield f"  {shape!s:>18}   {evidence.launches[shape]:>14,}   {evidence.plain[shape]:>16,}"
    if any(evidence.unplaced):
        launched, plain = evidence.unplaced
        yield f"  {'shape not logged':>18}   {launched:>14,}   {plain:>16,}"
