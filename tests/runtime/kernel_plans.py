"""Random feature plans of steps that the C kernel knows, and requests for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from runtime_plans import EDGES, KEYS, TEXTS, WORDS, objects

from bireme_runtime.plan import (
    Admitted,
    Bucketize,
    Embed,
    Feature,
    HashBucket,
    IdentityId,
    IntVocabulary,
    Mask,
    Numeric,
    Plan,
    Table,
    Vocabulary,
)
from bireme_runtime.tables import int8_row
from bireme_runtime.text_steps import Compute, HashStrong
from bireme_runtime.vocabulary import IntVocabulary as IntVocabularyFile
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

Array = np.ndarray[Any, Any]
CHAINS: tuple[tuple[tuple[str, float | None], ...], ...] = (
    (),
    (("sub", 0.5), ("div", 3.0)),
    (("abs", None), ("log1p", None)),
    (("square", None), ("add", 1.0), ("log", None), ("mul", 0.25)),
    (("maximum", 0.0), ("sqrt", None), ("neg", None)),
    (("rsub", 1.0), ("minimum", 2.0), ("tanh", None)),
)
WIDTHS = (1, 3, 4, 8, 16, 31, 32, 64, 128, 200)
ROWS = 37


def random_plan(seed: int) -> tuple[Plan, dict[str, Array], dict[str, Any]]:
    """A plan with its arenas and vocabularies; equal seeds give equal ones."""
    rng = np.random.default_rng(seed)
    handover = rng.choice(["float32", "float16"])
    tables, arenas = [], {}
    for number, width in enumerate(rng.choice(WIDTHS, 4, replace=False).tolist()):
        dtype = str(rng.choice(["float32", "float16", "int8"]))
        arena = f"arena_{dtype}_w{width}.bin"
        tables.append(Table(f"t{number}", arena, dtype, width, number, ROWS))
        arenas[arena] = _arena(rng, dtype, width, number + ROWS)
    features, steps, ends = [], [], {"user": 0, "item": 0}
    for number in range(int(rng.integers(3, 12))):
        side = "user" if rng.random() < 0.4 else "item"
        _add_feature(rng, f"f{number}", side, tables, features, steps, ends)
    features.append(Feature("anchor", "item", "float32"))
    steps.append(Numeric("anchor.number", "anchor", (), "item", ends["item"]))
    ids = [step for step in steps if not hasattr(step, "offset")]
    blocks = [step for step in steps if hasattr(step, "offset")]
    plan = Plan(
        "random",
        tuple(features),
        tuple(tables),
        (*ids, *blocks),
        ends["user"],
        ends["item"] + 1,
        handover,
        (3, 70, 200),
        pad=bool(rng.random() < 0.5),
    )
    words = VocabularyFile.build(list(WORDS), np.array(list(WORDS.values())))
    keys = IntVocabularyFile.build(list(KEYS), np.array(list(KEYS.values())))
    return plan, arenas, {"words.bin": words, "keys.bin": keys}


def _arena(rng: Any, dtype: str, width: int, rows: int) -> Array:
    values = rng.normal(0, 1, (rows, width))
    if dtype != "int8":
        return np.asarray(values.astype(dtype))
    stored = np.zeros(rows, int8_row(width))
    stored["scale"] = rng.gamma(1, 0.02, rows)
    stored["values"] = np.clip(values * 50, -127, 127).astype(np.int8)
    return stored


def _add_feature(
    rng: Any, name: str, side: str, tables: list[Table], features: list[Any], steps: list[Any], ends: Any
) -> None:
    """One feature, the ids made of it, and the columns made of those."""
    dtype = str(rng.choice(["string", "int64", "int32", "float32", "float64", "bool"]))
    length = [None, None, -1, 3][int(rng.integers(4))]
    text = "bytes" if dtype == "string" and rng.random() < 0.3 else "utf8"
    features.append(Feature(name, side, dtype, length, text=text))
    if dtype in ("float32", "float64") and length != -1 and rng.random() < 0.7:
        width = length or 1
        chain = CHAINS[int(rng.integers(len(CHAINS)))]
        steps.append(Numeric(f"{name}.number", name, chain, side, ends[side], width))
        ends[side] += width
    ids = _ids(rng, name, dtype)
    steps += ids
    last = ids[-1].name
    mask = None
    if rng.random() < 0.5:
        of, value = (last, int(rng.integers(0, 6))) if rng.random() < 0.5 or dtype == "bool" else (name, 3)
        test = str(rng.choice(["ne", "ge", "gt", "lt"]))
        if of == name and dtype == "string":
            test, value = "ne", "hat"  # type: ignore[assignment]
        mask = Mask(of, value, test, Mask(last, 2) if rng.random() < 0.3 else None)  # type: ignore[arg-type]
    table = tables[int(rng.integers(len(tables)))]
    pool = None if length is None and rng.random() < 0.7 else str(rng.choice(["sum", "mean", "sqrtn", "max"]))
    if length == 3 and rng.random() < 0.5:
        pool = None
    weights = None
    if pool is not None and length is not None and rng.random() < 0.4:
        weights = f"{name}.weight"
        features.append(Feature(weights, side, "float32", length))
    width = table.width * (length or 1 if pool is None else 1)
    embed = Embed(f"{name}.rows", last, table.name, side, ends[side], width, pool)
    if pool is not None:
        fill = int(rng.integers(ROWS)) if rng.random() < 0.3 else None
        floor = float(rng.choice([1.0, 0.5, 2.5]))
        embed = replace(embed, mask=mask, floor=floor, weights=weights, fill=fill)
    steps.append(embed)
    ends[side] += width
    if mask is not None and length == 3:
        steps.append(Admitted(f"{name}.mask", mask, side, ends[side], 3))
        ends[side] += 3


def _ids(rng: Any, name: str, dtype: str) -> list[Any]:
    step = f"{name}.id"
    if dtype == "string":
        kind = int(rng.integers(3))
        made = [
            HashBucket(step, name, ROWS),
            HashStrong(step, name, ROWS, (133, 2**63 + 5)),
            Vocabulary(step, name, "words.bin", 1),
        ][kind]
        return [made]
    if dtype in ("float32", "float64"):
        return [Bucketize(step, name, EDGES)]
    first = [IdentityId(step, name), IntVocabulary(step, name, "keys.bin", 0), Bucketize(step, name, EDGES)]
    made = first[int(rng.integers(3))]
    function, constant = [("add", 3), ("mul", -7), ("sub", 2), ("floordiv", 3), ("neg", None)][
        int(rng.integers(5))
    ]
    of = (step,) if constant is None else (step, constant)
    width = str(rng.choice(["int32", "int64"]))
    chain: list[Any] = [made]
    if rng.random() < 0.5:
        chain.append(Compute(f"{step}.{function}", function, of, width))
    return [*chain, Compute(f"{step}.row", "floormod", (chain[-1].name, ROWS), "int64")]


def random_request(plan: Plan, rng: Any, candidates: int | None = None) -> dict[str, Array]:
    """A valid request."""
    users = int(rng.integers(1, 4))
    candidates = candidates or int(rng.integers(1, plan.buckets[-1] + 1))
    lengths: dict[str, int] = {}
    tensors = {}
    for feature in plan.features:
        shape = (users, candidates) if feature.side == "item" else (users,)
        if feature.length is not None:
            base = feature.name.removesuffix(".weight")
            length = feature.length if feature.length != -1 else int(rng.integers(0, 6))
            shape = (*shape, lengths.setdefault(base, length))
        elif feature.side == "user":
            shape = (users, 1)
        tensors[feature.name] = _values(rng, feature, shape)
    return tensors


def _values(rng: Any, feature: Feature, shape: tuple[int, ...]) -> Array:
    if feature.dtype == "string":
        pool = (*TEXTS, b"\xff\xfe") if feature.text == "bytes" else TEXTS
        return objects([pool[i] for i in rng.integers(0, len(pool), int(np.prod(shape)))], shape)
    if feature.dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if feature.dtype in ("int32", "int64"):
        return np.asarray(rng.choice([*KEYS, 1, 2, 3, -(2**31)], shape).astype(feature.dtype))
    if feature.name.endswith(".weight"):
        return np.asarray(rng.choice([0.0, 0.3, 1.0], shape).astype(feature.dtype))
    return np.asarray((rng.choice([0.0, 1.5, 10.0], shape) * rng.gamma(1, 1, shape)).astype(feature.dtype))
