"""What `bireme verify` found, for people and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.verify.parity import Parity

__all__ = ["as_data", "as_text"]


def as_data(results: Sequence[Parity]) -> Any:
    """As JSON values."""
    return [result.as_data() for result in results]


def as_text(results: Sequence[Parity], clients: int) -> str:
    """Some lines: one a protocol, one a tolerance."""
    lines = []
    for result in results:
        several = f" ({result.together} of several users)" if result.together else ""
        lines.append(
            f"{result.protocol}: {result.requests:,} requests{several} from {clients} clients,"
            f" N {min(result.counts)} to {max(result.counts)}, {result.scores:,} scores:"
            f" largest difference {result.max_difference:.1e} (relative {result.max_relative:.1e})"
        )
    by_limit: dict[Any, list[str]] = {}
    for task, limit in results[0].tolerances.items():
        by_limit.setdefault(limit, []).append(task)
    for limit, tasks in by_limit.items():
        of = f" of {', '.join(tasks)}" if len(by_limit) > 1 else ""
        lines.append(
            f"served scores{of} equal the original model's (tolerance {limit.value:.3g}: {limit.reason})"
        )
    return "\n".join(lines)
