"""int8 tables: every step gives what FP32 tables of the same numbers give, fused or one by one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from runtime_plans import PLAN, make_request, write_plan

from bireme_runtime.kernels import KERNELS
from bireme_runtime.preprocessor import Features, Preprocessor
from bireme_runtime.tables import int8_row, open_arenas, row_bytes, split_arenas, take_rows


@pytest.fixture
def twins(tmp_path: Path) -> tuple[Preprocessor, Preprocessor]:
    """The plan of all steps with int8 arenas, and with FP32 arenas that hold the numbers they mean."""
    opened = Preprocessor.open(write_plan(tmp_path))
    rng = np.random.default_rng(11)
    coded, plain = {}, {}
    for name, arena in opened._arenas.items():
        rows, width = arena.shape
        coded[name] = np.zeros(rows, dtype=int8_row(width))
        coded[name]["scale"] = rng.gamma(1.0, 0.01, rows)
        coded[name]["values"] = rng.integers(-127, 128, (rows, width))
        plain[name] = coded[name]["values"].astype(np.float32) * coded[name]["scale"][:, None]
    stored = dataclasses.replace(
        PLAN, tables=tuple(dataclasses.replace(table, dtype="int8") for table in PLAN.tables)
    )
    return (
        Preprocessor(stored, coded, opened._vocabularies),
        Preprocessor(PLAN, plain, opened._vocabularies),
    )


@pytest.mark.parametrize("fused", [True, False])
def test_int8_equals_fp32_of_the_same_numbers(twins: tuple[Preprocessor, Preprocessor], fused: bool) -> None:
    stored, plain = twins
    if not fused:
        stored._stages = [lambda state, step=step: KERNELS[step.op](step, state) for step in PLAN.steps]
    requests = [make_request(seed, 1 + seed % 3, 1 + seed, seed % 4, seed % 5) for seed in range(8)]
    for mine, theirs in zip(stored.run(requests), plain.run(requests), strict=True):
        assert isinstance(mine, Features)
        assert isinstance(theirs, Features)
        assert np.array_equal(mine.user, theirs.user)
        assert np.array_equal(mine.items, theirs.items)
        assert mine.items.any()


def test_int8_arenas_are_mapped_and_their_size_is_checked(tmp_path: Path) -> None:
    table = dataclasses.replace(PLAN.tables[0], dtype="int8", arena="a.bin", width=5, row_offset=2, rows=3)
    rows = np.zeros(5, dtype=int8_row(5))
    rows["scale"], rows["values"] = 0.5, np.arange(25).reshape(5, 5)
    assert row_bytes(table) == 12
    (tmp_path / "a.bin").write_bytes(rows.tobytes())
    view = split_arenas(open_arenas(tmp_path, [table]), [table])[table.name]
    assert take_rows(view, np.array([[2], [0]])).tolist() == [
        [[10, 10.5, 11, 11.5, 12]],
        [[5, 5.5, 6, 6.5, 7]],
    ]
    with pytest.raises(ValueError, match="read-only"):
        view["scale"][0] = 1
    (tmp_path / "a.bin").write_bytes(rows.tobytes()[:-1])
    with pytest.raises(ValueError, match="59 bytes instead of 60"):
        open_arenas(tmp_path, [table])
