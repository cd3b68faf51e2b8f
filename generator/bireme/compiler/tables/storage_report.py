"""The report's part on how tables are stored: what a lossy storage changes on the sample requests."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bireme.compiler.fp16.ranking import Change

__all__ = ["storage_data", "storage_rows"]


def storage_data(changes: Mapping[str, Change], auc_of: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Task → the fields of its change and whose AUC that is, as JSON values (what does not exist is null)."""
    return {
        task: {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in {**dataclasses.asdict(change), "auc_of": auc_of[task]}.items()
        }
        for task, change in changes.items()
    }


def storage_rows(data: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """For a table of the report: task, change of score, of AUC, whose, places moved, share of the request."""
    return [
        (
            task,
            f"{change['score']:.1e}",
            "" if change["auc"] is None else f"{change['auc']:.1e}",
            change["auc_of"],
            f"{change['rank_move']}",
            f"{change['rank_share']:.1%}",
        )
        for task, change in data.items()
    ]
