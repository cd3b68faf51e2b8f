"""The build benchmark: samples belong to their pass, the large model is what it says, a build is measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import build_bench
from build_bench import as_data, measure, summarise
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
    samples = [(0.5, 999), (1.5, 10), (3.0, 400), (4.4, 500), (4.5, 450), (8.9, 300), (9.0, 998)]
    build = summarise(FOUND, samples, 0.5)
    assert build.passes == {"import": 2.0, "load": 1.5, "check": 4.5}
    assert build.anonymous == {"import": 10, "load": 500, "check": 450}
    assert build.seconds == 6.0  # the import does not count
    data = as_data("case", [build, summarise({**FOUND, "high_water": 1000}, [(3.1, 600)], 1.5)])
    assert (data["anonymous_peak_bytes"], data["high_water_bytes"]) == (600, 1000)
    assert data["anonymous_peak_over_tables"] == 1.5
    assert data["load"] == [0.5, 1.5]
    json.dumps(data, allow_nan=False)


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
