"""Subjects of the family table are exported, compiled and compared as `make families` does it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import names

SCRIPT = Path(__file__).parents[2] / "examples" / "families" / "families.py"
#: Few, and none needs a package of others.
FAST = ("keras_DeepFM_ids", "keras_DIN", "tf_lookup_tables")


def run(out, *flags):
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--docs", str(out), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def result_of(out, name):
    return json.loads((out / name / "kept.json").read_text("utf-8"))["result"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("families")
    return out, run(out, "--jobs", "2", "--only", *FAST)


@pytest.mark.parametrize("name", FAST)
def test_a_model_scores_as_its_saved_model(measured, name):
    out, done = measured
    result = result_of(out, name)
    assert result["status"] == "builds", (result, done.stdout)
    assert set(result["differences"]) == {"1", "7", "64", "500"}
    assert max(result["differences"].values()) == result["difference"] <= 1e-5
    assert result["user_columns"] > 0
    assert result["item_columns"] > 0
    assert result["flops"] < result["flops_rowwise"]


def test_every_model_is_reported_as_it_ends(measured):
    out, done = measured
    assert done.returncode == 0, done.stderr
    assert {line.split("] ")[1].split(":")[0] for line in done.stdout.splitlines()[:-1]} == set(FAST)
    assert done.stdout.endswith(f"{len(FAST)} of {len(FAST)} build within 1e-5\n")
    assert not (out / "families.md").exists()  # only a run of all of them writes the table


def test_what_was_measured_is_not_measured_again(measured):
    out, _ = measured
    log = out / FAST[0] / "measure.log"
    before = log.stat().st_mtime_ns
    assert run(out, "--only", FAST[0]).returncode == 0
    assert log.stat().st_mtime_ns == before


def test_a_wrong_score_and_a_hung_model_are_reported(measured, tmp_path):
    out, _ = measured
    (tmp_path / FAST[0]).symlink_to(out / FAST[0])
    done = run(tmp_path, "--only", FAST[0], "--fresh", "--limit", "0")
    assert done.returncode == 1
    assert "took more than 0 seconds" in done.stdout


@pytest.mark.slow
def test_at_least_twenty_models_build_and_every_other_one_is_explained(tmp_path):
    packages = Path(__file__).parents[2] / "build" / "families" / "packages"
    assert packages.is_dir(), "make families installs them"
    (tmp_path / "packages").symlink_to(packages)
    run(tmp_path, "--jobs", "2")
    results = json.loads((tmp_path / "families.json").read_text("utf-8"))
    assert list(results) == names()
    good = [name for name, result in results.items() if result["status"] == "builds"]
    assert len(good) >= 20
    assert all(results[name]["difference"] <= 1e-5 for name in good)
    assert all(results[name].get("reason") or "difference" in results[name] for name in names())
