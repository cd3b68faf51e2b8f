"""The strings bench on a real tritonserver, small and short."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import strings
from bireme.errors import VerifyError

pytestmark = pytest.mark.triton


def test_preprocess_and_the_loop_are_driven_and_reported(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(strings, "ROWS", 500)
    out = tmp_path / "strings.json"
    assert strings.main(["--strings", "200", "--rounds", "1", "--seconds", "0.3", "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert [case["note"] for case in result["cases"]] == ["hashed", "known"]
    for case in result["cases"]:
        assert case["baseline"] == "words_loop"
        assert set(case["ratios"]["words_loop"]) == {"words_preprocess", "words_decoded"}
        assert all(window["requests"] > 5 for windows in case["rounds"].values() for window in windows)
    assert out.with_suffix(".png").exists()


def test_wrong_rows_are_not_timed(monkeypatch):
    words = strings.Words(np.eye(3, 2, dtype=np.float32), np.eye(4, 2, dtype=np.float32), ["a", "b", "c"])
    monkeypatch.setattr(strings, "ROWS", 3)
    monkeypatch.setattr(strings, "decode", lambda answer: {"user": np.full((1, 4), 9, np.float32)})
    request = {"user": {"hashed": ["a"], "known": ["b"]}, "items": {"price": [1.0]}}
    with pytest.raises(VerifyError, match="request 0: differs by"):
        strings._require_right([b""], [b""], [request], words)
