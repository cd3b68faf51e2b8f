"""Whatever an op does with which axis: a network is refused by name, or its scores are each row's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from compiler_adversary import Adversary, rows_of
from compiler_networks import BOUNDARIES, ITEM_WIDTH, SHAPES, USER_WIDTH, random_halves

from bireme.compiler.dense import runner
from bireme.compiler.rows.rows_first import rows_first
from bireme.compiler.rows.user_once import user_once
from bireme.errors import CompileError

Arrays = dict[str, np.ndarray]
USER = [boundary.name for boundary in BOUNDARIES if boundary.side == "user"]
QUICK = 12
#: Networks in each test.
EACH = 8


def networks(part: int) -> list[tuple[int, onnx.ModelProto]]:
    """Valid ones among some seeds, with their seeds."""
    found = []
    for seed in range(part * EACH, (part + 1) * EACH):
        model = Adversary(seed).model(2 + seed % 5)
        if model is None:
            continue
        try:
            onnx.checker.check_model(model, full_check=True)
        except onnx.shape_inference.InferenceError:
            continue  # its shapes cannot hold for every number of rows
        found.append((seed, model))
    return found


def scores_of(model: onnx.ModelProto) -> Callable[[list[Arrays]], np.ndarray | None]:
    """The original's scores of several batches of rows; None if it cannot take one, be it too short."""
    run = runner(model)

    def scores(batches: list[Arrays]) -> np.ndarray | None:
        try:
            return np.stack([run(batch)["score"] for batch in batches])
        except Exception:  # ONNX Runtime's kinds have no common base but this
            return None

    return scores


def lifted(model: onnx.ModelProto, listwise: bool) -> onnx.ModelProto | None:
    """What is made of it; None if it is refused, which names an op or the output."""
    try:
        return user_once(rows_first(model, USER), BOUNDARIES, USER_WIDTH, ITEM_WIDTH, "float32", listwise)
    except CompileError as error:
        if not error.where.startswith(("op ", "output ")):
            raise
        return None


def check(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    assert found.shape == wanted.shape, what
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3 * scale, err_msg=what)


def parts() -> list[object]:
    marks = [[] if part < QUICK else [pytest.mark.slow] for part in range(20 * QUICK)]
    return [pytest.param(part, marks=mark) for part, mark in enumerate(marks)]


@pytest.mark.parametrize("part", parts())
def test_scores_are_each_rows_own(part):
    for seed, model in networks(part):
        served = lifted(model, listwise=False)
        if served is None:
            continue
        run, original = runner(served), scores_of(model)
        for users, candidates in ((1, 1), (3, 1), (2, 4), (3, 7), (7, 2)):
            halves = random_halves(users, candidates, seed=users)
            rows = rows_of(halves)
            what = f"seed {seed}, {users} users, {candidates} candidates"
            alone = [{name: v[k : k + 1] for name, v in rows.items()} for k in range(users * candidates)]
            for batches in (alone, [rows]):
                wanted = original(batches)
                if wanted is not None:
                    check(run(halves)["score"], wanted.reshape(users, candidates), what)


@pytest.mark.parametrize("part", parts())
def test_scores_are_those_of_each_users_list(part):
    for seed, model in networks(part):
        served = lifted(model, listwise=True)
        if served is None:
            continue
        run, original = runner(served), scores_of(model)
        for users, candidates in ((1, 4), (2, 7), (3, 4)):
            halves = random_halves(users, candidates, seed=users)
            alone = [{name: value[u : u + 1] for name, value in halves.items()} for u in range(users)]
            wanted = original([rows_of(one) for one in alone])
            if wanted is not None:
                check(run(halves)["score"], wanted, f"seed {seed}, {users} lists of {candidates}")


def test_the_networks_are_of_both_kinds():
    """Or the tests above would show nothing."""
    models = [model for part in range(QUICK) for _, model in networks(part)]
    served = [lifted(model, listwise=False) is not None for model in models]
    lists = [lifted(model, listwise=True) is not None for model in models]
    assert len(models) > QUICK * EACH // 2
    assert 0.2 < sum(served) / len(models) < 0.95
    assert sum(lists) > sum(served)
    assert set(SHAPES) <= {name for model in models for node in model.graph.node for name in node.input}
