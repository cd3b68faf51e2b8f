"""The two bounds that `preprocess` is measured between."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bireme.requests import to_tensors
from bireme.verify.verify import read_vocabularies
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features, Preprocessor
from micro.arrays import BareArrays
from micro.preprocess_slope import main
from micro.rows import RowLoop
from traffic import make_traffic


@pytest.fixture
def folder(repository: Path) -> Path:
    return repository / "tiny_preprocess" / "1"


def test_the_row_loop_computes_what_the_runtime_computes(folder: Path):
    preprocessor, loop = Preprocessor.open(folder), RowLoop(folder)
    for request in make_traffic(preprocessor.plan, read_vocabularies(preprocessor.plan, folder), [], 7, 10):
        tensors = to_tensors(preprocessor.plan.features, request)
        for left_out in ("", "seen", "price"):
            given = {name: array for name, array in tensors.items() if name != left_out}
            features = preprocessor.run([given])[0]
            assert isinstance(features, Features)
            user, items = loop.run(given)
            np.testing.assert_allclose(user, features.user, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(items, features.items, rtol=1e-6, atol=1e-6)


def test_bare_arrays_move_the_payload_and_as_many_table_rows(folder: Path):
    plan = Plan.read(folder / "plan.json")
    bare = BareArrays(folder)
    request = make_traffic(plan, read_vocabularies(plan, folder), [], 7, 1)[0]
    tensors = to_tensors(plan.features, request)
    payload, ids = bare.prepare(tensors)
    moved = bare.run(payload, ids)
    letters = sum(len(text) for array in tensors.values() if array.dtype == object for text in array.flat)
    assert sum(array.nbytes for array in moved[: len(payload)]) == letters + 7 * 4
    assert moved[-1].shape == (7, plan.item_width - 1)  # all item columns but the number, which is payload
    assert not any(np.shares_memory(a, b) for a, b in zip(moved, payload, strict=False))


def test_a_step_that_the_row_loop_lacks_is_refused(folder: Path, tmp_path: Path):
    raw = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    raw["steps"][0] = {"op": "bucketize", "name": "b", "feature": "price", "edges": [1.0]}
    for file in folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "plan.json").write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(ValueError, match="no 'bucketize'"):
        RowLoop(tmp_path)


def test_the_measurement_runs_and_reports(tiny, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("micro.preprocess_slope._COUNTS", (1, 16))
    out = tmp_path / "results" / "slope.json"
    assert main(["--spec", str(tiny(1)), "--repeats", "2", "--calls", "2", "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    slopes = result["nanoseconds_per_candidate"]
    assert set(slopes) == {"bare arrays", "preprocess", "strings to objects", "row loop"}
    assert all(len(rows) == 2 and len(rows[0]) == 2 for rows in result["microseconds"].values())
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "slope" in capsys.readouterr().out
    assert sorted(path.name for path in out.parent.iterdir()) == ["slope.json", "slope.png"]
