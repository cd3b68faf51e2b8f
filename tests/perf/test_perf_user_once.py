"""The user_once benchmark: compiles, compares before it measures, writes what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bireme.errors import VerifyError
from micro.user_once import main, require_equal


def test_one_network_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "user_once.json"
    few = ["--models", "DIN", "--candidates", "6", "--rounds", "2", "--calls", "1"]
    assert main([*few, "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    assert result["candidates"] == 6
    din = result["networks"]["DIN"]
    # Attention 64 wide over [h, t, h−t, h⊙t] of 16 columns each, 50 entries; then 32, 1, and the tower.
    tower = 512 * 256 + 256 * 64 + 64
    common = 50 * (64 * 32 + 32) + tower
    assert din["flops"]["rowwise"] == 2 * 6 * (50 * 64 * 64 + common + (800 + 192 + 16) * 512)
    once = 50 * 16 * 64 + 800 * 512
    assert din["flops"]["user_once"] == 2 * (once + 6 * (50 * 16 * 64 + common + 50 * 16 + (192 + 16) * 512))
    assert din["max_difference"] < 1e-5
    assert [len(times) for times in din["milliseconds"].values()] == [2, 2]
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "DIN" in capsys.readouterr().out


def test_different_scores_are_not_measured():
    with pytest.raises(VerifyError, match=r"scores differ by 1\.0e-01"):
        require_equal("m", [np.zeros(3)], [np.array([[0.0, 0.1, 0.0]])])
    with pytest.raises(VerifyError):
        require_equal("m", [np.zeros(3)], [np.array([[0.0, np.nan, 0.0]])])
