"""docs/gpu.md and README.md say what the record of the H200 says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOC = " ".join((ROOT / "docs/gpu.md").read_text(encoding="utf-8").split())
RESULTS = json.loads((ROOT / "perf/results/gpu.json").read_text(encoding="utf-8"))["results"]
ONE, MANY, ALONE, MPS = "1 instance, no graphs", "4 instances, graphs", ", one by one", ", MPS"


def rate(name: str, place: int = 0) -> float:
    return float(RESULTS[name]["closed"][place]["requests_per_s"])


def p99(name: str) -> float:
    return float(RESULTS[name]["offered"]["p99_us"])


def best(loads: list[dict[str, Any]]) -> float:
    return max(float(load["requests_per_s"]) for load in loads)


def test_ratios() -> None:
    one, many, shared = ONE + ALONE, MANY + ALONE, MANY + MPS + ALONE
    awake = f"{MANY}{MPS}, waits awake"
    assert f"answer {rate(many) / rate(one):.1f} times the requests of one without" in DOC
    assert 0.3 < p99(many) / p99(one) <= 1 / 3  # "a third of its P99"
    assert f"MPS makes it {rate(shared) / rate(one):.1f} times" in DOC
    assert f"without graphs {rate(ONE) / rate(one):.1f} times faster" in DOC
    assert f"are {rate(MANY) / rate(ONE):.1f} times as fast (MPS {rate(MANY + MPS) / rate(ONE):.2f}" in DOC
    assert f"with 8 instances {rate('8 instances, graphs, MPS') / rate(ONE):.1f} times" in DOC
    assert f"is {p99(MANY) / p99(ONE):.2f} (MPS {p99(MANY + MPS) / p99(ONE):.2f})" in DOC
    assert f"MPS is worth {rate(shared) / rate(many):.2f} times one by one" in DOC
    assert [f"{rate(MANY + MPS, k) / rate(MANY, k):.1f}" for k in (0, 1)] == ["1.2", "1.1"]
    assert f"answers {rate(awake) / rate(MANY + MPS):.2f} times" in DOC


def test_the_ensemble_and_the_users_side() -> None:
    ensembles = [RESULTS[f"ensemble end to end{name}"].values() for name in ("", MPS)]
    plain, shared = (best([load for v in variants for load in v["loads"]]) for variants in ensembles)
    eager = best(RESULTS["whole model, eager"]["loads"])
    assert f"{plain:,.0f} requests/s of 256 candidates (MPS {shared:,.0f})" in DOC
    assert f"{plain / eager:.1f} (MPS {shared / eager:.1f}) times" in DOC
    for place, candidates in enumerate(("500", "1000")):
        on, off = (RESULTS["user once or not"][key][candidates] for key in ("on", "off"))
        assert f"{off['alone']['p50_us'] / on['alone']['p50_us']:.1f}" == ("1.2", "1.3")[place]
        ratio = on["loaded"]["requests_per_s"] / off["loaded"]["requests_per_s"]
        assert f"{ratio:.2f}" == ("1.15", "1.28")[place]
    assert "1.2 times (N = 500) to 1.3 times (1000) shorter P50" in DOC
    assert "1.15 to 1.28 times the requests" in DOC


def test_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [name for name in RESULTS if f"| {name} |" in readme]
    assert len(rows) >= 5
    for name in rows:
        load = RESULTS[name]["closed"][0]
        figures = f"{load['requests_per_s']:,.0f} | {load['p99_us'] / 1e3:.2f} | {load['gpu_percent']:.0f}"
        assert f"| {name} | {figures} |" in readme
    eager = RESULTS["eager"]["loads"][1]
    assert f"one stream | {eager['requests_per_s']:,.0f} | {eager['p99_us'] / 1e3:.1f} |" in readme
    for name in ("scores of example", "scores of network", "scores of flat"):
        for network in RESULTS[name]["verify"]["networks"]:
            ordered = network["sequences"]
            assert ordered["bit_equal"] == ordered["compared"] > 0  # "to the bit"
