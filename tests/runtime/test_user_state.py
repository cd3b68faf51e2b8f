"""A state handed back: taken if it is of this build, refused in words if not; and half plans."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_plans import FILES, PLAN, make_request, write_file

from bireme.compiler.ahead.half_plans import half_plan
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.requests import RequestError
from bireme_runtime.user_state import STATE_PARAMETER, StateCheck

DESCRIBED = {"name": "user_state", "width": 6, "marks": [7, 2047], "made_by": "shop_user"}


def check_of(described: dict[str, Any]) -> StateCheck:
    found = StateCheck.of({"parameters": {STATE_PARAMETER: {"string_value": json.dumps(described)}}})
    assert found is not None
    return found


def state(users: int) -> np.ndarray[Any, Any]:
    array = np.random.default_rng(0).normal(size=(users, 6)).astype(np.float32)
    array[:, :2] = [7, 2047]
    return array


def test_a_model_without_a_state_checks_nothing() -> None:
    assert StateCheck.of({"parameters": {}}) is None
    assert StateCheck.of({}) is None


@pytest.mark.parametrize("users", [1, 3])
def test_a_state_of_this_build_is_taken(users: int) -> None:
    assert check_of(DESCRIBED).refusal({"user_state": state(users), "price": np.ones(3)}) is None


def test_every_other_state_is_refused_by_name() -> None:
    check = check_of(DESCRIBED)
    of_another = state(3)
    of_another[2, 1] = 2046  # one user of three
    not_a_number = state(1)
    not_a_number[0, 0] = np.nan
    for wrong, message in (
        (of_another, "'user_state' was made by another build of the model; ask 'shop_user' for a new one"),
        (not_a_number, "'user_state' was made by another build of the model; ask 'shop_user' for a new one"),
        (state(1)[:, :5], "'user_state' has shape [1, 5] where [users, 6] is expected; ask 'shop_user'"),
        (state(1)[0], "'user_state' has shape [6] where [users, 6] is expected; ask 'shop_user'"),
    ):
        assert message in str(check.refusal({"user_state": wrong}))
    assert str(check.refusal({})) == "'user_state' is missing; 'shop_user' makes it of the user features"


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Preprocessor]:
    folder = tmp_path_factory.mktemp("halves")
    for name in FILES:
        write_file(name, folder / name)
    plans = {
        "whole": PLAN,
        "user": half_plan(PLAN, "user", "shop_user"),
        "item": dataclasses.replace(half_plan(PLAN, "item", "shop_slice"), pad=True),
    }
    found = {}
    for name, plan in plans.items():
        (folder / "plan.json").write_text(plan.to_json())
        found[name] = Preprocessor.open(Path(folder))
    return found


def part(request: dict[str, Any], bank: Preprocessor) -> dict[str, Any]:
    known = {feature.name for feature in bank.plan.features}
    return {name: array for name, array in request.items() if name in known}


def test_halves_of_a_plan_hand_over_the_columns_of_the_whole(banks: dict[str, Preprocessor]) -> None:
    requests = [make_request(seed, 1 + seed % 3, 1 + seed, 2, 1) for seed in range(6)]
    user = banks["user"].run([part(request, banks["user"]) for request in requests])
    items = banks["item"].run([part(request, banks["item"]) for request in requests])
    for whole, one, other in zip(banks["whole"].run(requests), user, items, strict=True):
        assert isinstance(whole, Features)
        assert isinstance(one, Features)
        assert isinstance(other, Features)
        np.testing.assert_array_equal(one.user, whole.user)
        assert one.items.shape == (len(whole.user), 0, 0)
        assert other.user.shape == (len(whole.user), 0)
        np.testing.assert_array_equal(other.items[:, : other.candidates], whole.items)
        assert other.items.shape[1] >= other.candidates  # this half pads


def test_a_bad_user_fails_alone(banks: dict[str, Preprocessor]) -> None:
    good, bad, empty = (part(make_request(seed, 1, 2, 2, 1), banks["user"]) for seed in range(3))
    bad["hour"] = np.full((1, 1), 24)
    results = banks["user"].run([good, bad, {}, empty])
    assert isinstance(results[0], Features)
    assert "'hour': the value gives id 24" in str(results[1])
    assert "is missing and has no default" in str(results[2])
    assert isinstance(results[3], Features)


def test_a_user_of_defaults_only_is_no_user(tmp_path: Path) -> None:
    optional = tuple(
        dataclasses.replace(feature, default=3) for feature in PLAN.features if feature.name == "hour"
    )
    steps = tuple(step for step in PLAN.steps if getattr(step, "feature", None) == "hour")
    plan = dataclasses.replace(PLAN, features=optional, steps=steps, tables=(), user_width=1, item_width=0)
    (tmp_path / "plan.json").write_text(plan.to_json())
    (result,) = Preprocessor.open(tmp_path).run([{}])
    assert isinstance(result, RequestError)
    assert str(result) == "no user feature was sent, so the number of users is unknown"
