"""Evidence from logs: lines as both backends write them, and every way in which they can fall short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from google.protobuf import text_format

from bireme.verify.evidence import Evidence, judge, with_shapes
from bireme.verify.gpu_network import GpuNetwork, GraphShape, Shape, Tensor, gpu_networks
from bireme.verify.graph_log import GraphLog, Run, parse

GRAPHS = tuple(GraphShape(fewest, users, b) for fewest, users in ((1, 1), (2, 2), (3, 4)) for b in (64, 128))
INPUTS = (Tensor("user", np.dtype("float16"), (8,)), Tensor("items", np.dtype("float16"), (-1, 9)))
PYTHON = GpuNetwork("shop_dnn", "python", INPUTS, ("click",), 4, (64, 128), tuple(sorted(GRAPHS)), 2)
CPP = replace(PYTHON, backend="tensorrt")
HEAD = "I1130 23:10:00.123456 4711 "


def python_log(shapes: Sequence[GraphShape] = GRAPHS, instances: int = 2) -> list[str]:
    lines = []
    for number in range(instances):
        name = f"shop_dnn_0_{number}"
        lines += [f'{HEAD}model.py:31] "{name}: captured CUDA graph, {_said(g.shape)}"' for g in shapes]
    return lines


def _said(shape: Shape) -> str:
    return f"users {shape.users}, bucket {shape.bucket}"


def launched(shape: Shape, users: int) -> str:
    return f'{HEAD}model.py:40] "shop_dnn_0_1: launching CUDA graph, {_said(shape)}, for {users} users"'


def plainly(shape: Shape) -> str:
    return f'{HEAD}model.py:42] "shop_dnn_0_0: plain execution, {_said(shape)}"'


def judged(lines: Sequence[str], network: GpuNetwork = PYTHON, sent: Sequence[Shape] = ()) -> Evidence:
    log = parse(lines).get(network.name, GraphLog())
    return judge(network, log, log.runs, sent)


def test_a_clean_log_of_ours() -> None:
    found = judged(
        [*python_log(), launched(Shape(4, 64), 3), launched(Shape(1, 128), 1)],
        sent=[Shape(3, 64), Shape(1, 128)],
    )
    assert found.failures == []
    assert found.captures == {"shop_dnn_0_0": 6, "shop_dnn_0_1": 6}
    assert found.launches == {Shape(4, 64): 1, Shape(1, 128): 1}


def test_a_network_without_candidates() -> None:
    graphs = (GraphShape(1, 1, 0), GraphShape(2, 2, 0))
    network = replace(PYTHON, name="shop_dnn_user", buckets=(0,), graphs=graphs, max_users=2, instances=1)
    lines = [f"{HEAD}m] shop_dnn_user_0_0: captured CUDA graph, users {n}" for n in (1, 2)]
    lines.append(f"{HEAD}m] shop_dnn_user_0_0: launching CUDA graph, users 2, for 2 users")
    assert judged(lines, network, [Shape(2, 0)]).failures == []


@pytest.mark.parametrize(
    ("lines", "sent", "said"),
    [
        (python_log(GRAPHS[:-1]), [], "shop_dnn_0_0 has not captured 1 graphs of its plan: 4 x 128"),
        (python_log(instances=1), [], "1 of 2 instances have captured"),
        ([], [], "0 of 2 instances"),
        (python_log(), [], "not one CUDA Graph was launched in 0 executions"),
        ([*python_log(), plainly(Shape(3, 64))], [], "not one CUDA Graph was launched in 1 executions"),
        (
            [*python_log(), launched(Shape(1, 64), 1), plainly(Shape(3, 64))],
            [],
            "3 x 64 ran plainly 1 times, although the graph 4 x 64 is in its plan",
        ),
        (
            [*python_log(), launched(Shape(1, 64), 1)],
            [Shape(1, 64), Shape(3, 128)],
            "3 x 128 was sent, and no launch of the graph 4 x 128 is logged",
        ),
    ],
)
def test_what_falls_short_is_named(lines: list[str], sent: list[Shape], said: str) -> None:
    assert any(said in failure for failure in judged(lines, sent=sent).failures)


def test_plain_runs_of_shapes_outside_the_plan_are_no_failure() -> None:
    partly = replace(PYTHON, graphs=tuple(graph for graph in PYTHON.graphs if graph.bucket == 64))
    lines = [*python_log(partly.graphs), launched(Shape(1, 64), 1), plainly(Shape(3, 128))]
    found = judged(lines, partly, [Shape(1, 64), Shape(3, 128)])
    assert (found.failures, found.plain) == ([], {Shape(3, 128): 1})


CPP_CAPTURES = [
    f"{HEAD}tensorrt.cc:1] captured CUDA graph for shop_dnn_0_{number}, batch size {graph.users}"
    for number in (0, 1)
    for graph in GRAPHS
]
CPP_LAUNCH = f"{HEAD}t.cc:2] Context with profile default [0] is launching CUDA graph for shop_dnn_0_0"
CPP_PLAIN = f"{HEAD}t.cc:3] Context with profile default [0] is being executed for shop_dnn_0_1"


def test_the_backends_lines_get_their_shapes_from_what_was_sent() -> None:
    sent = [Shape(3, 64), Shape(1, 128)]
    log = parse([*CPP_CAPTURES, CPP_LAUNCH, CPP_LAUNCH])["shop_dnn"]
    found = judge(CPP, log, with_shapes(CPP, log.runs, sent), sent)
    assert (found.failures, found.launches) == ([], {Shape(4, 64): 1, Shape(1, 128): 1})
    assert found.captures == {"shop_dnn_0_0": 6, "shop_dnn_0_1": 6}


def test_a_plain_run_of_the_backend_is_found() -> None:
    sent = [Shape(3, 64), Shape(1, 128)]
    log = parse([*CPP_CAPTURES, CPP_LAUNCH, CPP_PLAIN])["shop_dnn"]
    placed = judge(CPP, log, with_shapes(CPP, log.runs, sent), sent)
    assert any("1 x 128 ran plainly 1 times" in failure for failure in placed.failures)
    unplaced = judge(CPP, log, log.runs, sent)
    assert any("1 plain executions, although graphs cover every shape" in f for f in unplaced.failures)


def test_shapes_are_not_guessed_where_the_numbers_differ() -> None:
    runs = [Run("shop_dnn_0_0", True)]
    assert with_shapes(CPP, runs, [Shape(1, 64), Shape(2, 64)]) == runs


def test_a_graph_that_the_backend_did_not_capture_is_counted() -> None:
    found = judged([*CPP_CAPTURES[:-1], CPP_LAUNCH], CPP)
    assert any("shop_dnn_0_1 has not captured 1 graphs of its plan: 4 x 128" in f for f in found.failures)


def test_networks_are_found_in_what_both_targets_emit(tmp_path) -> None:
    from bireme.emitter.configs import model_configs
    from bireme.spec import Contract
    from bireme_runtime.plan import Feature

    for target, backend in (("gpu", "tensorrt"), ("gpu-python", "python")):
        contract = Contract(
            model="shop",
            features=(Feature("price", "item", "float32"), Feature("age", "user", "float32")),
            tasks=("click",),
            user_width=8,
            item_width=9,
            buckets=(64, 128),
            max_users=4,
            target=target,
            handover="float16",
        )
        configs = model_configs(contract)
        for config in configs:
            (tmp_path / target / config.name).mkdir(parents=True)
            text = text_format.MessageToString(config)
            (tmp_path / target / config.name / "config.pbtxt").write_text(text)
        (network,) = gpu_networks(tmp_path / target, [config.name for config in configs], [64, 128])
        assert (network.name, network.backend, network.buckets) == ("shop_dnn", backend, (64, 128))
        assert network.graphs == tuple(sorted(GRAPHS))
        assert network.covers_all
        assert network.instances == contract.instances.dnn
        assert network.graph_for(Shape(3, 128)) == GraphShape(3, 4, 128)
        assert network.graph_for(Shape(5, 128)) is None
