"""The graph plan under a budget: covers every number of users, keeps what must stay, says what it costs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from emitter_helpers import make_contract
from hypothesis import assume, given
from hypothesis import strategies as st

from bireme.compiler.reporting.report_graphs import graphs_line
from bireme.emitter.graph_budget import (
    MB_PER_CAPTURE,
    SECONDS_PER_CAPTURE,
    GraphChoice,
    choose_graphs,
)
from bireme.emitter.graphs import graphs, user_graphs
from bireme.errors import SpecError
from bireme.spec import BuildSpec, Target
from bireme.spec_instances import Instances

BUCKETS = st.lists(st.integers(1, 4096), min_size=1, max_size=5, unique=True).map(sorted)
TARGETS = st.sampled_from(["gpu", "gpu-python"])


def spec(**fields: Any) -> BuildSpec:
    return BuildSpec.model_validate({"model": "shop", "saved_model": "x", "user": [], **fields})


def choose(given: BuildSpec, target: Target = "gpu", dnn: int = 2, user_ahead: bool = False) -> GraphChoice:
    choice = choose_graphs(given, target, Instances(dnn=dnn), user_ahead)
    assert choice is not None
    return choice


@given(
    target=TARGETS,
    max_users=st.integers(1, 1024),
    buckets=BUCKETS,
    dnn=st.integers(1, 8),
    ahead=st.booleans(),
    most=st.integers(1, 2000),
    memory=st.integers(1, 2000),
    seconds=st.floats(0.1, 60),
)
def test_whatever_the_budget_every_shape_has_a_graph_and_the_largest_is_captured(
    target: Target,
    max_users: int,
    buckets: list[int],
    dnn: int,
    ahead: bool,
    most: int,
    memory: int,
    seconds: float,
) -> None:
    budget = {"max": most, "memory_mb": memory, "load_seconds": seconds}
    given = spec(buckets=buckets, max_users=max_users, graphs=budget)
    try:
        choice = choose(given, target, dnn, ahead)
    except SpecError:
        assume(False)
        return
    assert choice.captures <= most
    assert choice.captures * MB_PER_CAPTURE <= memory
    assert choice.captures * SECONDS_PER_CAPTURE <= seconds
    contract = make_contract(target, max_users=max_users, buckets=tuple(buckets), graph_users=choice.users)
    plan = graphs(contract)
    for bucket in buckets:
        ranges = sorted((graph.fewest, graph.users) for graph in plan if graph.bucket == bucket)
        covered = [users for fewest, users_ in ranges for users in range(fewest, users_ + 1)]
        assert covered == list(range(1, max_users + 1))
    assert (max_users, buckets[-1]) in {(graph.users, graph.bucket) for graph in plan}
    assert 1 in choice.users
    copies = 3 if target == "gpu" else 2
    networks = 2 * len(plan) + len(user_graphs(contract)) if ahead else len(plan)
    assert choice.captures == networks * copies * dnn


def test_sizes_go_from_the_middle() -> None:
    # 4 buckets x 3 sets of events x 2 contexts: 24 captures for every size.
    kept = {most: choose(spec(graphs={"max": most})) for most in (120, 119, 95, 71, 48)}
    assert {most: choice.users for most, choice in kept.items()} == {
        120: (1, 2, 4, 8, 16),
        119: (1, 2, 8, 16),
        95: (1, 2, 16),
        71: (1, 16),
        48: (1, 16),
    }
    assert kept[95].left_out == (4, 8)
    assert graphs_line(kept[95].as_data()) == (
        "CUDA Graphs for 1, 2, 16 users x 4 buckets; left out by the budget: 4, 8: 72 captures on a GPU"
        " (3 in each of 2 instances), roughly 36 MB and 0.7 s at load"
    )


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"graphs": {"max": 47}}, "raise graphs.max;"),
        ({"graphs": {"memory_mb": 23}}, "raise graphs.memory_mb;"),
        ({"graphs": {"load_seconds": 0.4}}, "raise graphs.load_seconds;"),
        ({"graphs": {"max": 100, "users": [1, 2, 4, 8, 16]}}, "a shorter `graphs.users`"),
    ],
)
def test_where_not_even_the_fewest_fit_the_build_is_refused(fields: dict[str, Any], remedy: str) -> None:
    with pytest.raises(SpecError, match="shop: graphs: allows") as caught:
        choose(spec(**fields))
    assert remedy in caught.value.hint
    assert "`dnn_instances`, fewer `buckets`" in caught.value.hint
    needed = re.search(r"at least (\d+) are needed", caught.value.message)
    assert needed is not None
    enough = {"max": int(needed[1]), "memory_mb": 999, "load_seconds": 99}
    choose(spec(**{**fields, "graphs": {**fields["graphs"], **enough}}))  # what it asks for is enough


def test_sizes_given_by_hand_are_taken_as_they_are_and_end_with_max_users() -> None:
    choice = choose(spec(graphs={"users": [1, 3, 16]}))
    assert (choice.users, choice.left_out) == ((1, 3, 16), ())
    assert choose(spec(max_users=1)).users == (1,)
    with pytest.raises(SpecError, match=r"graphs.users: ends with 8 where `max_users` is 16") as caught:
        choose(spec(graphs={"users": [1, 8]}))
    assert "max_users: 8" in caught.value.hint
    with pytest.raises(SpecError, match="ends with 32"):
        choose(spec(graphs={"users": [1, 32]}))


@pytest.mark.parametrize("users", [[], [0, 16], [4, 2, 16], [2, 2, 16]])
def test_sizes_that_are_none_are_refused(users: list[int]) -> None:
    with pytest.raises(ValueError, match="users must be positive and strictly ascending"):
        spec(graphs={"users": users})


def test_the_cpu_has_no_graphs() -> None:
    assert choose_graphs(spec(), "cpu", Instances(), False) is None


def test_the_budget_does_not_decide_the_scores() -> None:
    assert spec(graphs={"max": 24}).served() == spec().served()


def test_the_report_lists_every_shape_and_says_that_it_guesses() -> None:
    data = choose(spec(buckets=(4, 16), max_users=2), "gpu-python", dnn=4).as_data()
    assert data["shapes"] == [[1, 4], [1, 16], [2, 4], [2, 16]]
    assert (data["captures"], data["copies_per_instance"], data["instances"]) == (32, 2, 4)
    assert data["estimate"] == {"rough": True, "memory_mb": 16, "load_seconds": 0.3}
