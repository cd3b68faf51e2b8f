"""Verdicts, pictures, report and timeline, from made-up results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu.plots import PICTURES, draw_all, in_order
from gpu.report import as_markdown
from gpu.timeline import overlap, shorten
from gpu.verdicts import judge
from gpu.whole import bottleneck


def load(rate: float, clients: int | None = 8, **more: Any) -> dict[str, Any]:
    numbers = {"requests_per_s": rate, "p50_us": 8e6 / rate, "p99_us": 12e6 / rate, "merged": 1.5}
    return {**numbers, "rows": 256, "rows_per_s": rate * 256, "clients": clients, "gpu_percent": 90.0, **more}


def row(rate: float, p99: float | None = None) -> dict[str, Any]:
    offered = None if p99 is None else load(800, None, p99_us=p99, offered_per_s=800.0)
    return {"closed": [load(rate), load(1.1 * rate, 16)], "offered": offered}


def launch(lane: int, start: float) -> dict[str, Any]:
    times = {"h2d": [start, start + 10], "compute": [start + 10, start + 60], "d2h": [start + 60, start + 64]}
    return {"lane": lane, "users": 1, "bucket": 256, "unix_us": 1e15, **times}


LAUNCHES = [launch(k % 2, 32.0 * k) for k in range(60)]
STEPS = {
    "m_preprocess": {"queue_us": 900.0, "compute_us": 800.0, "merged": 2.0},
    "m_dnn": {"queue_us": 30.0, "compute_us": 700.0, "merged": 2.0},
}
RESULTS = {
    "facts": {
        "machine": {"cores": 16, "processor": "X"},
        "tensorrt": "8.6.0",
        "gpu": {"name": "G", "compute_capability": "9.0", "driver": "580"},
        "prepared": {
            "builds": {
                "network": {"gpu": {"onnx_nodes": 177, "passes": [{"pass": "user_once", "nodes": 168}]}}
            }
        },
    },
    "1 instance, no graphs": row(1000, 6000.0),
    "4 instances, graphs": row(4000, 1500.0),
    "4 instances, graphs, MPS": row(5100, 2100.0),
    "1 instance, no graphs, one by one": row(900),
    "eager": {"loads": [load(150, 1), load(160), load(155, 16)]},
    "user once or not": {
        label: {
            n: {"bytes_in": size, "bytes_out": 6144, "alone": load(800, 1), "loaded": load(3000)}
            for n in ("500", "1000")
        }
        for label, size in (("on", 263_168), ("off", 786_432))
    },
    "ensemble end to end": {
        "4": {
            "preprocess": 4,
            "dnn": 4,
            "mps": False,
            "loads": [load(3000, steps=STEPS, bottleneck="m_dnn: busy")],
        }
    },
    "whole model, eager": {"loads": [load(120)]},
    "timeline": {"launches": shorten(LAUNCHES), "of": len(LAUNCHES), **overlap(LAUNCHES)},
    "scores of network": {
        "verify": {
            "scores": [{"protocol": "grpc", "requests": 300, "scores": 90_000, "max_difference": 1.3e-3}],
            "networks": [
                {
                    "model": "m_dnn",
                    "sequences": {
                        "compared": 400,
                        "bit_equal": 390,
                        "largest": 2e-4,
                        "repeated": 200,
                        "changed": 0,
                    },
                    "graphs": {
                        "launches": [{"count": 1000}, {"count": 234}],
                        "plain": [],
                        "launches_of_unknown_shape": 0,
                        "plain_of_unknown_shape": 0,
                    },
                }
            ],
        }
    },
}
FOUND = {
    "results": dict(sorted(RESULTS.items())),
    "order": list(RESULTS),
    "missing": {"GPU tests": "failed: CommandError: pytest: 1"},
    "verdicts": judge(RESULTS),
}


def verdict(part: str) -> tuple[str, float | None]:
    claims = {v["claim"]: v for v in judge(RESULTS)}
    found = claims.get(part) or next(v for claim, v in claims.items() if claim.endswith(part))
    return found["verdict"], found["found"]


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ("throughput of 4 instances, graphs over 1 instance, no graphs, 8 clients", ("pass", 4.0)),
        ("8 clients, every request by itself", ("not measured", None)),
        ("P99 of 4 instances, graphs over 1 instance, no graphs, equal offered load", ("pass", 0.25)),
        ("equal offered load, every request by itself", ("not measured", None)),
        ("P99 of 4 instances, graphs, MPS over 1 instance, no graphs, equal offered load", ("fail", 0.35)),
        ("throughput of 4 instances, graphs over eager FP32, best load of each", ("pass", 27.5)),
        ("throughput with MPS over without, best of 8 and 16 clients", ("fail", 1.275)),
        ("8 clients, no MPS", ("pass", 4000.0)),
        ("requests/s of 4 instances, graphs, MPS, b256, best of 8 and 16 clients", ("pass", 5610.0)),
        ("the ensemble over the whole model executed eagerly, best load of each", ("pass", 25.0)),
    ],
)
def test_claims_are_judged_by_their_thresholds(part: str, wanted: tuple[str, float | None]) -> None:
    found = verdict(part)
    assert found[0] == wanted[0]
    assert found[1] == (None if wanted[1] is None else pytest.approx(wanted[1], rel=1e-3))


def test_without_results_nothing_is_judged() -> None:
    assert {v["verdict"] for v in judge({})} == {"not measured"}


def test_the_report_says_what_the_json_says_in_the_order_of_the_steps() -> None:
    text = as_markdown(FOUND, "../perf/results/gpu")
    assert "| 4 instances, graphs | b256 c8 | 4,000 | 1.02 M | 2,000 | 3,000 | 1.50 | 90 |" in text
    assert text.index("| 1 instance, no graphs | b256") < text.index("| 4 instances, graphs | b256")
    assert "| 500 | once | 263,168 | 6,144 | 10,000 | 3,000 | 4,000 |" in text
    assert "largest difference 1.3e-03" in text
    assert "`m_dnn`: 1,234 graph launches, 0 plain executions; 400 answers in sequences" in text
    assert "* GPU tests: failed: CommandError: pytest: 1" in text
    assert "168 after user_once; 177 ONNX nodes" in text
    assert all(f"gpu_{name}.png" in text for name in PICTURES)


def test_every_picture_is_drawn_where_there_are_results_and_none_where_not(tmp_path: Path) -> None:
    written = draw_all(in_order(json.loads(json.dumps(FOUND))), tmp_path / "gpu")
    assert [path.name for path in written] == [f"gpu_{name}.png" for name in PICTURES]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    assert draw_all({}, tmp_path / "none") == []


def test_overlap_counts_the_copies_during_which_another_launch_computes() -> None:
    apart = [launch(0, 0.0), launch(0, 100.0)]
    assert overlap(apart)["overlapped"] == 0.0
    half = [launch(0, 0.0), launch(1, 55.0)]  # its copy in [55, 65] meets a computation until 60
    assert overlap(half)["overlapped"] == pytest.approx(5 / 28, abs=1e-3)
    assert overlap(half)["compute_us"] == 50
    assert overlap([]) == {"overlapped": 0.0, "h2d_us": 0.0, "compute_us": 0.0, "d2h_us": 0.0}


def test_the_picture_shows_launches_from_the_middle_and_starts_at_zero() -> None:
    found = shorten(LAUNCHES[::-1])
    assert len(found) == 24
    assert found[0]["h2d"][0] == 0.0
    assert found[1]["h2d"][0] == 32.0


def test_the_bottleneck_is_the_step_whose_processes_are_busiest() -> None:
    measured = {"requests_per_s": 4000.0, "gpu_percent": 55.0, "steps": STEPS}
    text = bottleneck(measured, {"m_preprocess": 2, "m_dnn": 4})
    assert text.startswith("m_preprocess: its 2 instances are busy 80% of the time")
    assert text.endswith("GPU 55 %")
    assert bottleneck(measured, {"m_preprocess": 16, "m_dnn": 4}).startswith("m_dnn")
