"""The build benchmark: samples belong to their pass, the large model is what it says, a build is measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import build_bench
from build_bench import as_data, make_large, measure, missed, summarise
from build_model import make_model

FOUND = {
    "passes": [["import", 1.0], ["load", 3.0], ["check", 4.5], ["end", 9.0]],
    "base": {"RssAnon": 10, "VmHWM": 20},
    "high_water": 900,
    "features": 3,
    "tables": 2,
    "table_bytes": 400,
    "largest_table_bytes": 300,
}


def test_samples_belong_to_the_pass_that_ran() -> None:
    anonymous = [(0.5, 999), (1.5, 10), (3.0, 400), (4.4, 500), (4.5, 450), (8.9, 300), (9.0, 998)]
    samples = [(at, size, 1000 - size) for at, size in anonymous]
    build = summarise(FOUND, samples, 0.5)
    assert build.passes == {"import": 2.0, "load": 1.5, "check": 4.5}
    assert build.anonymous == {"import": 10, "load": 500, "check": 450}
    assert build.resident == {"import": 990, "load": 600, "check": 700}
    assert build.seconds == 6.0  # the import does not count
    data = as_data("case", [build, summarise({**FOUND, "high_water": 1000}, [(3.1, 600, 800)], 1.5)])
    assert (data["anonymous_peak_bytes"], data["high_water_bytes"]) == (600, 1000)
    assert data["anonymous_peak_over_tables"] == 1.5
    assert data["load"] == [0.5, 1.5]
    assert data["high_water_over_tables"] == 2.5
    assert data["passes"]["load"]["resident_bytes"] == 800
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize(
    ("tables", "seconds", "ratio", "faults"),
    [
        (1 << 31, 179.0, 1.49, []),
        (1 << 31, 180.0, 1.49, ["180 s"]),
        (1 << 31, 10.0, 1.5, ["VmHWM is 1.50 ×"]),
        (1 << 31, 200.0, 1.63, ["200 s", "VmHWM is 1.63 ×"]),
        (1 << 20, 200.0, 500.0, []),  # TensorFlow alone takes more than these tables
    ],
)
def test_a_large_build_has_limits(tables: int, seconds: float, ratio: float, faults: list[str]) -> None:
    case = {"case": "c", "table_bytes": tables, "high_water_over_tables": ratio}
    found = missed({**case, "seconds": {"median": seconds}})
    assert len(found) == len(faults)
    assert all(part in fault for part, fault in zip(faults, found, strict=True))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's memory accounting")
def test_tables_are_never_in_memory_at_once(tmp_path: Path) -> None:
    """Neither while they are loaded, nor as mapped pages that the check has touched."""
    build = measure(make_large(tmp_path, 60, 0.375, False))
    base, size = build.found["base"], build.found["table_bytes"]
    assert size > 350 << 20
    assert build.anonymous["load"] - base["RssAnon"] < 0.8 * size  # 0.45; all at once 1.2
    assert (
        build.found["high_water"] - base["VmHWM"] < 1.4 * size
    )  # 1.05; with all pages that are touched 1.96


def test_a_large_model_builds_and_has_the_bytes_that_were_asked_for(tmp_path: Path) -> None:
    wanted = 4 << 20
    size = make_model(tmp_path, 15, wanted)
    assert abs(size - wanted) < 0.01 * wanted
    build = measure(tmp_path / "bireme.yaml")
    assert build.found["features"] == 15
    assert build.found["table_bytes"] == size
    assert {"load", "split", "check", "emit"} <= set(build.passes)
    assert build.anonymous["check"] > 50 << 20  # TensorFlow alone has more
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bireme.yaml", "saved_model"]


def test_nearly_all_bytes_may_be_in_one_table(tmp_path: Path) -> None:
    size = make_model(tmp_path, 15, 4 << 20, single=True)
    build = measure(tmp_path / "bireme.yaml")
    assert build.found["largest_table_bytes"] > 0.2 * size


def test_a_build_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "bireme.yaml").write_text("model: m\nsaved_model: nothing\nuser: [a]\n")
    with pytest.raises(RuntimeError, match="does not exist"):
        measure(tmp_path / "bireme.yaml")


def test_a_full_disk_is_noticed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "build.json")
    monkeypatch.setattr(sys, "argv", ["build_bench", "--spec", "x", "--out", out, "--gigabytes", "1e9"])
    with pytest.raises(SystemExit, match="GB of free disk"):
        build_bench.main()
