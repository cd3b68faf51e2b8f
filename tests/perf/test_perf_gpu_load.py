"""Loads: perf_analyzer's command and CSV, payloads, copies of models, readings of nvidia-smi."""

from __future__ import annotations

import base64
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from baseline.repository import config_of
from bireme.emitter.manifest import check_repository
from bireme.errors import EmitError, ServerError
from gpu import analyzer
from gpu.analyzer import Load, parse_csv, run_load
from gpu.monitor import parse_samples
from gpu.payloads import handed_over, raw, write_payload
from gpu.refresh import refresh
from gpu.throughput import said
from gpu.variants import set_instances, set_parameter, variant

# What perf_analyzer 2.50 wrote about an ensemble under an open loop.
CSV = (
    "Request Rate,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n"
    "20,18.0413,17,3051,4,84,14770,937,3,15863,29268,36129,41149\n"
)


def test_the_csv_of_a_real_run_is_understood() -> None:
    found = parse_csv(CSV, 25)
    assert found.requests_per_s == 18.0413
    assert (found.p50_us, found.p99_us) == (15863, 41149)
    assert (found.queue_us, found.compute_infer_us, found.compute_output_us) == (4, 14770, 937)
    assert found.spread == 25


def test_a_csv_without_a_load_is_refused() -> None:
    with pytest.raises(ValueError, match="holds 0 loads"):
        parse_csv(CSV.splitlines()[0] + "\n", 25)


def test_a_closed_loop_waits_and_an_open_one_does_not() -> None:
    closed = Load("m", Path("p.json"), clients=8).arguments("h:1", Path("r.csv"), 25, 5)
    assert closed[closed.index("--concurrency-range") + 1] == "8"
    assert "--sync" in closed
    assert closed[closed.index("--shared-memory") + 1] == "system"
    paced = Load("m", Path("p.json"), rate=2600.04).arguments("h:1", Path("r.csv"), 25, 5)
    assert paced[paced.index("--request-rate-range") + 1] == "2600.0"
    assert {"poisson", "--async"} <= set(paced)
    assert "--concurrency-range" not in paced


def stand_in(path: Path, body: str) -> None:
    """A stand-in for perf_analyzer, which is no dependency: a script that does what the test wants to see."""
    path.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$@" >> {path}.log\n{body}\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_unstable_windows_are_measured_again_with_a_wider_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, csv = tmp_path / "pa", tmp_path / "csv"
    csv.write_text(CSV, encoding="utf-8")
    report = 'while [ "$1" != -f ]; do shift; done\n'
    unstable = "case \"$*\" in *'-s 25'*) echo Failed to obtain stable measurement; exit 2;; esac\n"
    stand_in(script, f'{unstable}{report}cp {csv} "$2"')
    monkeypatch.setenv(analyzer.VARIABLE, str(script))
    assert run_load(Load("m", tmp_path / "p.json"), "h:1", 20).spread == 80
    assert len((tmp_path / "pa.log").read_text().splitlines()) == 2


def test_a_failure_is_told_with_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "pa"
    stand_in(script, "echo error: model m not found; exit 1")
    monkeypatch.setenv(analyzer.VARIABLE, str(script))
    with pytest.raises(ServerError, match="model m not found"):
        run_load(Load("m", tmp_path / "p.json"), "h:1", 20)
    assert len((tmp_path / "pa.log").read_text().splitlines()) == 1


def test_payloads_hold_the_tensors_without_their_batch_dimension(tmp_path: Path) -> None:
    items = np.arange(6, dtype="float16").reshape(1, 3, 2)
    words = np.array([[b"red", b"blue"]], dtype=object)
    path = write_payload(tmp_path / "new" / "p.json", [{"items": items, "color": words}])
    (request,) = json.loads(path.read_text())["data"]
    assert request["items"]["shape"] == [3, 2]
    content = base64.b64decode(request["items"]["content"]["b64"])
    assert np.array_equal(np.frombuffer(content, "float16"), items.reshape(-1))
    assert request["color"] == {"content": ["red", "blue"], "shape": [2]}


def test_what_preprocess_hands_over_is_unpadded_and_typed(
    repository: Path, tiny: Callable[[int], Path]
) -> None:
    from bireme_runtime.plan import Plan

    request = {"user": {"country": "x"}, "items": {"color": ["red", "blue", "?"], "brand": ["a", "b", "c"]}}
    folder = repository / "tiny_preprocess" / "1"
    (found,) = handed_over(folder, [request], "float16")
    plan = Plan.read(folder / "plan.json")
    assert found["items"].shape == (1, 3, plan.item_width)
    assert found["user"].shape == (1, plan.user_width)
    assert {array.dtype for array in found.values()} == {np.dtype("float16")}
    assert set(raw(plan, [request])[0]) == {"country", "color", "brand"}


def test_a_variant_changes_its_config_and_nothing_of_the_original(repository: Path, tmp_path: Path) -> None:
    before = (repository / "tiny_dnn" / "config.pbtxt").read_bytes()
    edits = (set_instances(3), set_parameter("graphs", ""))
    folder = variant(repository, ["tiny_preprocess", "tiny_dnn"], tmp_path / "v", *edits)
    config = config_of(folder, "tiny_dnn")
    assert [group.count for group in config.instance_group] == [3]
    assert config.parameters["graphs"].string_value == ""
    assert config_of(folder, "tiny_preprocess") == config_of(repository, "tiny_preprocess")
    assert (repository / "tiny_dnn" / "config.pbtxt").read_bytes() == before
    original, copy = (root / "tiny_dnn" / "1" / "model.onnx" for root in (repository, folder))
    assert original.stat().st_ino == copy.stat().st_ino


def test_readings_of_nvidia_smi() -> None:
    found = parse_samples("97, 1234\n100, 1300\n[N/A], 3\n5")
    assert [(sample.busy, sample.memory_mb) for sample in found] == [(97, 1234), (100, 1300)]


def test_what_instances_say_of_themselves_is_found_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = (
        "net_dnn_0_0: TensorRT 8.6.0 on NVIDIA H200 (GPU 0), 2 lanes, 20 CUDA graphs each, captured in 0.8 s"
    )
    log.write_text(f'I1 7 python_be.cc:1] "other"\nI1 7 pb_stub.cc:9] "{line}"\n', encoding="utf-8")
    assert said(log) == [line]
    assert said(None) == []


def test_refreshed_repositories_hold_this_trees_runtime_and_a_manifest_that_fits(
    repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "repository"
    shutil.copytree(repository, folder)
    version = folder / "tiny_dnn" / "1"
    (version / "bireme_runtime" / "dense.py").write_text("old", encoding="utf-8")
    (version / "bireme_runtime" / "gone.py").write_text("old", encoding="utf-8")
    (version / "model.py").write_text("old", encoding="utf-8")
    with pytest.raises(EmitError):
        check_repository(folder, "tiny")
    assert refresh(folder, "cpu") == 3
    check_repository(folder, "tiny", deep=True)
    assert not (version / "bireme_runtime" / "gone.py").exists()
    assert (version / "model.py").read_bytes() == (repository / "tiny_dnn" / "1" / "model.py").read_bytes()
    assert refresh(folder, "cpu") == 0
