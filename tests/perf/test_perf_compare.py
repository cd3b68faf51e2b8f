"""The whole comparison on a real tritonserver, small and short."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from baseline.repository import Setting
from bireme.errors import ClientError, VerifyError
from bireme.spec import read_spec
from compare import compare, main
from driver import LoadProcess

pytestmark = pytest.mark.triton


def test_ensemble_and_baseline_are_driven_in_turn_and_reported(tiny, tmp_path: Path, capsys):
    out = tmp_path / "compare.json"
    options = ["--candidates", "5", "--clients", "1", "2", "--rounds", "1", "--seconds", "0.3"]
    assert main(["--spec", str(tiny(1)), *options, "--baseline", "1x1m", "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["largest_difference"] <= 1e-5
    assert [(case["candidates"], case["clients"]) for case in result["cases"]] == [(5, 1), (5, 2)]
    for case in result["cases"]:
        assert case["baseline"] == "tiny_whole_1x1m"
        for model, processes in (
            ("tiny", {"server", "tiny_preprocess", "tiny_dnn"}),
            ("tiny_whole_1x1m", {"server", "tiny_whole_1x1m"}),
        ):
            (window,) = case["rounds"][model]
            assert window["requests"] > 5
            assert 0 < window["p50"] <= window["p99"]
            busy = {role for role, seconds in window["cpu"].items() if seconds > 0.01}
            assert busy <= processes
            assert "server" in busy
    assert out.with_suffix(".png").exists()
    assert "CPU a request" in capsys.readouterr().out


def test_a_baseline_of_another_model_is_not_compared(tiny, repository: Path, tmp_path: Path):
    other = read_spec(tiny(1)).model_copy(update={"saved_model": read_spec(tiny(2)).saved_model})
    folder = shutil.copytree(repository, tmp_path / "repository")
    with pytest.raises(VerifyError, match=r"differ by .* so their speeds are not compared"):
        compare(other, folder, [Setting()], [5], [1], rounds=1, seconds=0.1)


def test_a_server_that_does_not_answer_is_named():
    with LoadProcess("127.0.0.1:1", {}) as load:
        load.prepare("any", [b""])
        with pytest.raises(ClientError, match=r"127\.0\.0\.1:1: a request failed"):
            load.ask("any")
