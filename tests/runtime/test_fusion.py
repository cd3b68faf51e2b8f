"""Fused stages against the same steps one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_plans import PLAN, make_request, write_plan

from bireme_runtime import fusion
from bireme_runtime.kernels import KERNELS
from bireme_runtime.preprocessor import Features, Preprocessor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plan(tmp_path_factory.mktemp("fusion"))


@pytest.mark.parametrize("merged_keys", [0, 100_000])
def test_stages_equal_steps(folder: Path, monkeypatch: pytest.MonkeyPatch, merged_keys: int) -> None:
    monkeypatch.setattr(fusion, "_MERGED_KEYS", merged_keys)
    fused = Preprocessor.open(folder)
    single = Preprocessor.open(folder)
    single._stages = [lambda state, step=step: KERNELS[step.op](step, state) for step in PLAN.steps]
    assert len(fused._stages) < len(single._stages)
    requests = [make_request(seed, 1 + seed % 3, 1 + seed, seed % 4, seed % 5) for seed in range(8)]
    for mine, theirs in zip(fused.run(requests), single.run(requests), strict=True):
        assert isinstance(mine, Features)
        assert isinstance(theirs, Features)
        assert np.array_equal(mine.user, theirs.user)
        assert np.array_equal(mine.items, theirs.items)
