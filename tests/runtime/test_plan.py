"""plan.json: read back as written, and refused by name when it is not a whole plan of this runtime."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime_plans import PLAN

from bireme_runtime.plan import Numeric, Plan


def test_a_plan_comes_back_as_it_was() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN


def test_every_kind_of_step_is_in_that_plan() -> None:
    from bireme_runtime.kernels import KERNELS
    from bireme_runtime.text_steps import DERIVED_STEPS

    # These have tests of their own: test_derived.py, test_subgraph.py, test_counted.py.
    assert {step.op for step in PLAN.steps} == set(KERNELS) - set(DERIVED_STEPS) - {"subgraph", "counted"}


def test_equal_plans_are_equal_text() -> None:
    assert dataclasses.replace(PLAN).to_json() == PLAN.to_json() == Plan.from_json(PLAN.to_json()).to_json()


@pytest.mark.parametrize("constant", [0.1, 1e-45, -3.4028234663852886e38, 0.6931471824645996])
def test_constants_keep_every_bit(constant: float) -> None:
    plan = dataclasses.replace(PLAN, steps=(Numeric("x", "price", (("mul", constant),), "item", 0),))
    assert Plan.from_json(plan.to_json()).steps == plan.steps


def _changed(change: Callable[[dict[str, Any]], Any]) -> str:
    raw = json.loads(PLAN.to_json())
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_changed(lambda raw: raw.update(format=2)), "reads feature plans of format 1, not 2"),
        (_changed(lambda raw: raw.pop("format")), "reads feature plans of format 1, not None"),
        ("[]", "reads feature plans of format 1"),
        (_changed(lambda raw: raw["steps"][0].update(op="teleport")), "step 'teleport' is unknown to this"),
        (_changed(lambda raw: raw.pop("buckets")), "has no 'buckets'"),
        (_changed(lambda raw: raw["steps"][3].pop("op")), "has no 'op'"),
        (_changed(lambda raw: raw["features"][0].update(colour="red")), "another form: .*colour"),
        (_changed(lambda raw: raw["tables"][0].pop("rows")), "another form: .*rows"),
        (PLAN.to_json()[:-100], "line"),
        ("", "line 1"),
    ],
)
def test_what_is_not_a_plan_is_refused_with_file_reason_and_remedy(
    text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason) as caught:
        Plan.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith("rebuild the repository with `bireme build`")


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "plan.json", tmp_path):
        with pytest.raises(ValueError, match=f"^{path}: cannot be read: .*rebuild the repository"):
            Plan.read(path)
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match=f"^{tmp_path}/binary: .*rebuild the repository"):
        Plan.read(tmp_path / "binary")
