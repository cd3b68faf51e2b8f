"""The baseline asks TensorFlow for the rows that the ensemble's scores are checked against."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import fake_pb_utils
from baseline.repository import Setting, config_of, whole_name, write_whole
from bireme.errors import EmitError
from bireme.requests import to_rows, to_tensors
from bireme.spec import read_spec
from bireme_runtime.plan import Feature

FEATURES = [
    Feature("age", "user", "int64"),
    Feature("seen", "user", "string", -1, default=["x", "y"]),
    Feature("name", "item", "string"),
    Feature("tags", "item", "string", 2),
    Feature("price", "item", "float32", default=2.5),
]


@pytest.mark.parametrize("left_out", [(), ("seen", "price")])
def test_rows_are_those_that_the_original_model_is_asked(monkeypatch, left_out):
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake_pb_utils)
    model = importlib.import_module("baseline.model")
    user = {"age": 30, "seen": ["a", "", "c"]}
    items = {"name": ["n", "m"], "tags": [["a", "b"], ["c", "d"]], "price": [1.0, 2.0]}
    request = {
        "user": {name: value for name, value in user.items() if name not in left_out},
        "items": {name: value for name, value in items.items() if name not in left_out},
    }
    described = [vars(feature) for feature in FEATURES]
    tensors = to_tensors(FEATURES, request)
    rows = model._to_rows(described, tensors, *model._size(described, tensors))
    expected = to_rows(FEATURES, request)
    assert rows.keys() == expected.keys()
    for name, array in expected.items():
        found = rows[name]
        if found.dtype == object:  # TensorFlow takes text and bytes alike
            found = np.array([s if isinstance(s, bytes) else s.encode() for s in found.flat], object)
            found = found.reshape(rows[name].shape)
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


def test_a_signature_that_takes_the_user_once_gets_him_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake_pb_utils)
    model = importlib.import_module("baseline.model")
    described = [vars(feature) for feature in FEATURES]
    request = {
        "user": {"age": 30, "seen": ["a", "b"]},
        "items": {"name": ["n", "m"], "tags": [["a", "b"]] * 2},
    }
    rows = model._to_rows(described, to_tensors(FEATURES, request), 1, 2, once=True)
    assert {name: len(array) for name, array in rows.items()} == {
        "age": 1,
        "seen": 1,
        "name": 2,
        "tags": 2,
        "price": 2,
    }


@pytest.mark.parametrize("text", ["1x1", "2x1", "12x4m", "2x1o"])
def test_a_setting_reads_back_what_it_writes(text):
    assert str(Setting.parse(text)) == text


@pytest.mark.parametrize("text", ["", "2", "0x1", "2x1mm", "2x1mo", "2x"])
def test_other_settings_are_refused(text):
    with pytest.raises(ValueError, match="INSTANCESxTHREADS"):
        Setting.parse(text)


def test_the_baseline_takes_the_ensembles_requests(repository: Path, tiny, tmp_path: Path):
    folder = shutil.copytree(repository, tmp_path / "repository")
    spec = read_spec(tiny(1))
    for setting in (Setting(1, 1), Setting(2, 1, merge=True)):  # the second one replaces the first
        assert write_whole(spec, spec.saved_model, folder, setting) == whole_name("tiny")
    config, ensemble = config_of(folder, "tiny_whole"), config_of(folder, "tiny")
    assert [(i.name, i.data_type, i.dims, i.optional) for i in config.input] == [
        (i.name, i.data_type, i.dims, i.optional) for i in ensemble.input
    ]
    assert list(config.output) == list(ensemble.output)
    assert config.instance_group[0].count == 2
    assert config.HasField("dynamic_batching")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["repository"]


def test_without_the_ensemble_there_is_nothing_to_compare_with(tiny, tmp_path: Path):
    spec = read_spec(tiny(1))
    with pytest.raises(EmitError, match=r"config\.pbtxt: cannot be read"):
        write_whole(spec, spec.saved_model, tmp_path, Setting())
