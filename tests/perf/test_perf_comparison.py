"""Which way round a ratio is, and against whom."""

from __future__ import annotations

import dataclasses
import json

import pytest

from comparison import METRICS, Case, as_data, cpu_per_request, order
from driver import Window
from plot import draw
from tables import context_table, ratio_table, ratio_text


def window(requests: int, latency: float, cpu: float = 1.0) -> Window:
    return Window(requests, 2.0, latency, 3 * latency, {"server": cpu / 4, "x": 3 * cpu / 4, "idle": 0.0})


CASE = Case(
    80,
    4,
    "shop",
    {
        "shop": [window(200, 1.0), window(300, 2.0), window(400, 1.0)],
        "shop_whole_1x1": [window(100, 3.0), window(100, 8.0), window(100, 5.0)],
        "shop_whole_2x1": [window(150, 9.0), window(150, 9.0), window(50, 9.0)],
    },
)


def test_above_1_the_ensemble_is_better_in_every_metric():
    better = Case(1, 1, "a", {"a": [window(4, 1.0, 1.0)], "b": [window(2, 3.0, 1.0)]})
    worse = Case(1, 1, "b", better.rounds)
    for metric in METRICS:
        assert better.ratio(metric).median > 1
        assert worse.ratio(metric).median == pytest.approx(1 / better.ratio(metric).median)


def test_the_fastest_variant_is_the_one_to_beat():
    assert CASE.baseline == "shop_whole_2x1"
    assert CASE.ratio("throughput").median == pytest.approx(2.0)
    assert CASE.ratio("throughput").highest == pytest.approx(8.0)
    assert CASE.ratio("p50", "shop_whole_1x1").median == pytest.approx(4.0)


def test_what_stands_beside_the_ensemble_is_no_baseline_and_a_tuned_one_not_the_one_to_beat():
    rounds = CASE.rounds | {"shop_fused": [window(800, 0.5)] * 3, "shop_whole_1x1o": [window(300, 1.0)] * 3}
    case = dataclasses.replace(CASE, rounds=rounds, beside=("shop_fused",), tuned=("shop_whole_1x1o",))
    assert case.ours == ("shop", "shop_fused")
    assert case.baselines == ("shop_whole_2x1", "shop_whole_1x1o")
    assert case.ratio("throughput", model="shop_fused").median == pytest.approx(800 / 150)
    assert case.ratio("throughput", "shop_whole_1x1o", "shop_fused").median == pytest.approx(800 / 300)
    data = json.loads(json.dumps(as_data(case)))
    assert {name: set(models) for name, models in data["ratios"].items()} == {
        name: {"shop", "shop_fused"} for name in case.baselines
    }
    assert ratio_table([case]).row_count == 4
    picture = draw([case], {"processor": "P", "cores": 2}, rounds=3, seconds=1.0, count="n")
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == [
        "shop, n = 80, 4 clients",
        "fused, n = 80, 4 clients",
        "shop, n = 80, 4 clients, against whole_1x1o",
        "fused, n = 80, 4 clients, against whole_1x1o",
    ]


def test_a_load_in_words():
    assert CASE.load == "4 clients"
    assert dataclasses.replace(CASE, clients=1, note="hashed").load == "1 client, hashed"
    assert dataclasses.replace(CASE, clients=0, rate=12.6).load == "13/s"


def test_cpu_is_counted_per_request_and_idle_processes_are_left_out():
    assert cpu_per_request(window(500, 1.0, cpu=2.0)) == pytest.approx({"server": 1.0, "x": 3.0})


def test_each_model_comes_first_and_last_equally_often():
    rounds = [order(["a", "b", "c"], round_) for round_ in range(4)]
    assert sum(names[0] == "a" for names in rounds) == sum(names[-1] == "a" for names in rounds) == 2
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)


def test_everything_that_is_reported_is_in_the_result():
    data = json.loads(json.dumps(as_data(CASE)))
    assert set(data["ratios"]) == {CASE.baseline}
    assert set(data["ratios"][CASE.baseline]["shop"]) == set(METRICS)
    assert len(data["rounds"]["shop"]) == 3
    assert data["baseline"] == CASE.baseline


def test_tables_and_picture_hold_every_case():
    cases = [CASE, Case(500, 1, "shop", CASE.rounds)]
    assert ratio_table(cases).row_count == 2
    assert context_table(cases).row_count == 6
    assert ratio_text(CASE.ratio("throughput")) == "2.00 (1.33–8.00)"
    figure = draw(cases, {"processor": "P", "cores": 2}, rounds=3, seconds=1.0)
    assert [panel.get_title() for panel in figure.axes] == [
        "throughput",
        "median latency",
        "99th percentile latency",
        "CPU time a request",
    ]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "shop, N = 80, 4 clients",
        "shop, N = 500, 1 client",
    ]
