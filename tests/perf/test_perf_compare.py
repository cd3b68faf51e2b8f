"""The whole comparison on a real tritonserver, small and short."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from baseline.repository import ONE_USER, Setting
from bireme.errors import ClientError, VerifyError
from bireme.spec import read_spec
from compare import compare, main
from driver import LoadProcess, _arrivals, _Generator
from reference_model import make_request, write_model

pytestmark = pytest.mark.triton


def test_all_are_driven_in_turn_and_reported(tiny, tmp_path: Path, capsys):
    out = tmp_path / "compare.json"
    options = ["--candidates", "5", "--clients", "1", "2", "--rounds", "1", "--seconds", "1.0"]
    assert main(["--spec", str(tiny(1)), *options, "--baseline", "1x1m", "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["largest_difference"] <= 1e-5
    assert [(case["candidates"], case["clients"]) for case in result["cases"]] == [(5, 1), (5, 2), (5, 0)]
    windows = result["cases"][1]["rounds"]["tiny_whole_1x1m"]
    closed = windows[0]["requests"] / windows[0]["seconds"]
    assert result["cases"][2]["rate"] == pytest.approx(0.8 * closed)
    for case in result["cases"]:
        assert case["baseline"] == "tiny_whole_1x1m"
        assert set(case["ratios"][case["baseline"]]) == {"tiny", "tiny_fused", "tiny_floor"}
        for model, processes in (
            ("tiny", {"server", "tiny_preprocess", "tiny_dnn"}),
            ("tiny_fused", {"server", "tiny_fused"}),
            ("tiny_floor", {"server", "tiny_preprocess", "tiny_null"}),
            ("tiny_whole_1x1m", {"server", "tiny_whole_1x1m"}),
        ):
            (window,) = case["rounds"][model]
            assert window["requests"] > 5
            assert 0 < window["p50"] <= window["p99"]
            # A process that waits costs a tick of the clock now and then.
            spent = sum(window["cpu"].values())
            busy = {role for role, seconds in window["cpu"].items() if seconds > 0.1 * spent}
            assert busy <= processes
            assert "server" in busy
    assert out.with_suffix(".png").exists()
    assert "CPU a request" in capsys.readouterr().out


@pytest.mark.slow
def test_the_reference_model_is_compared_with_both_of_its_signatures(tmp_path: Path):
    out = tmp_path / "compare.json"
    options = ["--candidates", "5", "--clients", "1", "--rounds", "1", "--seconds", "1.0", "--rows", "64"]
    assert main(["--reference", *options, "--baseline", "1x1", "1x1o", "--out", str(out)]) == 0
    for case in json.loads(out.read_text(encoding="utf-8"))["cases"]:
        assert set(case["ratios"]) == {"reference_whole_1x1", "reference_whole_1x1o"}
        assert case["baseline"] == "reference_whole_1x1"


def test_both_signatures_of_the_reference_model_give_the_same_scores(tmp_path: Path):
    import tensorflow as tf

    spec = read_spec(write_model(tmp_path, rows=64))
    model = tf.saved_model.load(str(spec.saved_model))
    request = make_request(np.random.default_rng(0), 7)
    one = {name: tf.constant([value]) for name, value in request["user"].items()}
    items = {name: tf.constant(value) for name, value in request["items"].items()}
    assert set(spec.user) == set(one)
    rows = {name: tf.repeat(value, 7, axis=0) for name, value in one.items()}
    scores = [
        model.signatures[signature](**user, **items)["click"].numpy()
        for signature, user in (("serving_default", rows), (ONE_USER, one))
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=0, atol=1e-6)
    assert np.ptp(scores[0]) > 1e-3


def test_requests_come_at_the_rate_and_wait_if_the_server_is_late():
    def call(message: bytes, timeout: float) -> None:
        time.sleep(0.2 if message == b"slow" else 0.0)

    generator = _Generator("", {})
    generator._calls = [call] * 24
    generator.prepare("x", [b"slow"] * 24 + [b""])
    latencies = generator._send_when_due("x", [0.01 * i for i in range(25)])
    assert min(latencies[:24]) >= 0.2
    generator.prepare("y", [b"slow"])
    # Twice as many at once as there are senders: the second half waits for the first.
    assert max(generator._send_when_due("y", [0.0] * 48)) >= 0.4
    assert len(_arrivals(random.Random(1), 100.0, 50.0)) == pytest.approx(5000, rel=0.1)
    assert len(_arrivals(random.Random(1), 0.001, 0.001)) == 1


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
