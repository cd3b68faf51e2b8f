"""The reference request: one user with 10 histories of 50 and 20 single features, 500 candidates with 20.

About 10,500 rows of embedding tables, which lie in one arena.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme_runtime.plan import Embed, Feature, IdentityId, Numeric, Plan, Table
from bireme_runtime.text_steps import Compute

__all__ = [
    "CANDIDATES",
    "HISTORIES",
    "ITEMS",
    "LENGTH",
    "NUMBERS",
    "USERS",
    "arena_name",
    "reference_plan",
    "requests",
]

Array = np.ndarray[Any, Any]
HISTORIES, LENGTH, USERS, ITEMS, CANDIDATES = 10, 50, 20, 20, 500
NUMBERS = 8
_TABLES = HISTORIES + USERS + ITEMS


def arena_name(dtype: str, width: int) -> str:
    """Name of the only arena."""
    return f"arena_{dtype}_w{width}.bin"


def reference_plan(width: int, rows: int, dtype: str, handover: Any, whole: bool = False) -> Plan:
    """The plan.

    Args:
        width: of all tables.
        rows: of all tables together.
        dtype: storage type, "float32", "float16" or "int8".
        handover: dtype of the outputs.
        whole: with all that a preprocess does: ids are larger than the tables and taken modulo their rows,
            and candidates have 8 numbers, of which a logarithm is taken and which are standardised.
    """
    each = rows // _TABLES
    tables = [Table(f"t{i}", arena_name(dtype, width), dtype, width, i * each, each) for i in range(_TABLES)]
    features: list[Feature] = []
    ids: list[Any] = []
    blocks: list[Any] = []
    ends = {"user": 0, "item": 0}

    def add(name: str, side: Any, length: int | None, pool: Any) -> None:
        features.append(Feature(name, side, "int64", length))
        step = f"{name}.id"
        ids.append(Compute(step, "floormod", (name, each), "int64") if whole else IdentityId(step, name))
        table = tables[len(blocks)].name
        blocks.append(Embed(f"{name}.rows", step, table, side, ends[side], width, pool))
        ends[side] += width

    for i in range(HISTORIES):
        add(f"history{i}", "user", -1, "sum")
    for i in range(USERS):
        add(f"user{i}", "user", None, None)
    for i in range(ITEMS):
        add(f"item{i}", "item", None, None)
    for i in range(NUMBERS if whole else 0):
        features.append(Feature(f"number{i}", "item", "float32"))
        chain = (("log1p", None), ("sub", 1.5), ("mul", 0.8))
        blocks.append(Numeric(f"number{i}", f"number{i}", chain, "item", ends["item"]))
        ends["item"] += 1
    steps = (*ids, *blocks)
    outputs = ends["user"], ends["item"], handover, (512,)
    return Plan("reference", tuple(features), tuple(tables), steps, *outputs, pad=False)


def requests(plan: Plan, count: int, seed: int) -> list[dict[str, Array]]:
    """Different requests, with ids spread evenly over the tables."""
    rng = np.random.default_rng(seed)
    whole = any(isinstance(step, Compute) for step in plan.steps)
    most = 2**31 - 1 if whole else plan.tables[0].rows

    def tensor(feature: Feature) -> Array:
        if feature.dtype == "float32":
            return np.asarray(rng.gamma(1, 30, (1, CANDIDATES)).astype(np.float32))
        size = CANDIDATES if feature.side == "item" else LENGTH if feature.length is not None else 1
        return np.asarray(rng.integers(0, most, (1, size)))

    return [{feature.name: tensor(feature) for feature in plan.features} for _ in range(count)]
