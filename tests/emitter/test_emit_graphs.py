from __future__ import annotations

from emitter_helpers import make_contract
from hypothesis import given
from hypothesis import strategies as st

from bireme.emitter.configs import model_configs
from bireme.emitter.graphs import graph_plan, graphs

BUCKETS = st.lists(st.integers(1, 4096), min_size=1, max_size=5, unique=True).map(lambda b: tuple(sorted(b)))


@given(max_users=st.integers(1, 1024), buckets=BUCKETS)
def test_each_formable_shape_has_exactly_one_graph_that_fits(
    max_users: int, buckets: tuple[int, ...]
) -> None:
    plan = graphs(make_contract("gpu", max_users=max_users, buckets=buckets))
    for bucket in buckets:
        ranges = sorted((graph.fewest, graph.users) for graph in plan if graph.bucket == bucket)
        covered = [users for fewest, most in ranges for users in range(fewest, most + 1)]
        assert covered == list(range(1, max_users + 1))
        # Never more than twice the work: at most every second row is padding.
        assert all(most < 2 * fewest for fewest, most in ranges)


@given(max_users=st.integers(1, 1024), buckets=BUCKETS)
def test_the_largest_shape_is_captured(max_users: int, buckets: tuple[int, ...]) -> None:
    shapes = graph_plan(make_contract("gpu", max_users=max_users, buckets=buckets))
    assert (max_users, buckets[-1]) in shapes
    assert (
        len(shapes)
        == len(set(shapes))
        == len(buckets) * (max_users.bit_length() + (max_users & (max_users - 1) > 0))
    )


def test_the_plan_for_six_users() -> None:
    shapes = graph_plan(make_contract("gpu", max_users=6, buckets=(4, 16)))
    assert shapes == [(1, 4), (1, 16), (2, 4), (2, 16), (4, 4), (4, 16), (6, 4), (6, 16)]


@given(max_users=st.integers(1, 64), buckets=BUCKETS)
def test_the_config_carries_the_plan_with_both_inputs_in_spec_and_bound(
    max_users: int, buckets: tuple[int, ...]
) -> None:
    contract = make_contract("gpu", max_users=max_users, buckets=buckets)
    config = next(c for c in model_configs(contract) if c.name == contract.dnn)
    specs = config.optimization.cuda.graph_spec
    assert config.optimization.cuda.graphs
    assert [(spec.batch_size, spec.input["items"].dim[0]) for spec in specs] == graph_plan(contract)
    for spec, graph in zip(specs, graphs(contract), strict=True):
        assert spec.graph_lower_bound.batch_size == graph.fewest
        for shapes in (spec.input, spec.graph_lower_bound.input):
            assert {name: list(shape.dim) for name, shape in shapes.items()} == {
                "user": [contract.user_width],
                "items": [graph.bucket, contract.item_width],
            }
    # Together with graphs these three made a server abort; none is cleared.
    assert not config.optimization.eager_batching
    assert not config.optimization.cuda.output_copy_stream
    assert not config.optimization.cuda.busy_wait_events
