"""The benchmarks of the kernel: small ones run, and what they compare is the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bireme.errors import VerifyError
from bireme_runtime.library import CHOICE, load
from micro import gather, whole_preprocess
from micro.bars import Bars, draw
from micro.reference_plan import reference_plan, requests
from ratios import Spread

needs_kernel = pytest.mark.skipif(load()[0] is None, reason=load()[1])


@needs_kernel
def test_a_small_gather_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "CASES", gather.CASES[:3])
    out = tmp_path / "gather.json"
    assert gather.main(["--rounds", "2", "--calls", "3", "--most-rows", "5000", "--out", str(out)]) == 0
    cases = json.loads(out.read_text())["cases"]
    assert len(cases) == 3
    for case in cases:
        times = case["microseconds"]
        assert {"limit", "kernel", "numpy"} <= set(times)
        found = case["ratios"]["numpy ÷ kernel"]["median"]
        assert found == pytest.approx(np.median(np.divide(times["numpy"], times["kernel"])))
    assert out.with_suffix(".png").stat().st_size > 10_000


@needs_kernel
def test_a_small_preprocess_benchmark(tmp_path: Path) -> None:
    out = tmp_path / "preprocess.json"
    arguments = ["--rounds", "2", "--calls", "3", "--rows", "5000", "--out", str(out)]
    assert whole_preprocess.main(arguments) == 0
    assert set(json.loads(out.read_text())["ratios"]) == {
        "TensorFlow ÷ runtime",
        "numpy ÷ runtime",
        "numpy, user repeated ÷ runtime",
    }


def test_without_the_kernel_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "numpy")
    plan = reference_plan(16, 5000, "float32", "float32", whole=True)
    with pytest.raises(VerifyError, match="bireme kernel"):
        whole_preprocess.methods_of(plan, gather.make_arena(16, 5000, "float32"))


def test_the_reference_request_reads_about_10_500_rows() -> None:
    plan = reference_plan(16, 50_000, "float32", "float32")
    rows, counts = gather.arena_rows(plan, requests(plan, 1, 0)[0])
    assert (rows.size, counts.size) == (10_520, 50)
    assert 0 <= rows.min() <= rows.max() < 50_000


def test_bars_have_their_ratios_written_beside_them() -> None:
    figure = draw([Bars("a", {"x": Spread(2.0, 1.0, 3.0)})], {"processor": "p", "cores": 2}, "y = 1")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "2.00" in texts
