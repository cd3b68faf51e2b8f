"""Golden files: what is written comes back, whatever its bytes; another build's file is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.errors import VerifyError
from bireme.requests import to_tensors
from bireme.verify.golden import Golden, read_golden, refuse_other_build, write_golden
from bireme_runtime.plan import Feature

SOURCE = {
    "saved_model_sha256": "ab" * 32,
    "signature": "serving_default",
    "spec": {"buckets": [2, 4], "defaults": {"x": [1.5]}},
}
REQUESTS = [
    {"user": {"word": "ключ", "seen": [b"\xff\0", b""]}, "items": {"id": [b"a"], "price": [0.1]}},
    {
        "user": {"word": b"k", "seen": []},
        "items": {"id": ["a", "é"], "price": np.array([1e-30, 2.5], np.float32)},
    },
]
SCORES = [
    {"click": np.array([0.1], np.float32), "buy": np.array([3.0], np.float32)},
    {"click": np.array([0.2, 0.3], np.float32), "buy": np.array([-1.0, 1e-8], np.float32)},
]
GOLDEN = Golden("shop", SOURCE, REQUESTS, SCORES, ((0, 1),))
FEATURES = (
    Feature("word", "user", "string"),
    Feature("seen", "user", "string", length=-1),
    Feature("id", "item", "string"),
    Feature("price", "item", "float32"),
)


def written(path: Path, golden: Golden = GOLDEN) -> Path:
    write_golden(golden, path)
    return path


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    back = read_golden(written(tmp_path / "g.npz"))
    assert (back.model, back.source, back.together) == ("shop", SOURCE, [[0, 1]])
    for now, then in zip(back.requests, REQUESTS, strict=True):
        sent, meant = to_tensors(FEATURES, now), to_tensors(FEATURES, then)
        assert sent.keys() == meant.keys()
        for name in sent:
            assert sent[name].dtype == meant[name].dtype
            np.testing.assert_array_equal(sent[name], meant[name])
    for now, then in zip(back.scores, SCORES, strict=True):
        assert now.keys() == then.keys()
        for task in now:
            np.testing.assert_array_equal(now[task], then[task])
            assert now[task].dtype == then[task].dtype
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]


VALUES = st.one_of(st.binary(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())


@settings(max_examples=30)
@given(st.dictionaries(st.text(min_size=1), VALUES), st.lists(VALUES, min_size=1, max_size=5))
def test_any_value_comes_back(user: dict[str, Any], values: list[Any]) -> None:
    request = {"user": user, "items": {"x": values}}
    scores = {"click": np.zeros(len(values), np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.npz"
        write_golden(Golden("m", SOURCE, [request], [scores]), path)
        assert list(read_golden(path).requests) == [request]


def change(**fields: Any) -> Callable[[dict[str, np.ndarray]], None]:
    def apply(content: dict[str, np.ndarray]) -> None:
        about = json.loads(content["about"].tobytes()) | fields
        content["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)

    return apply


DAMAGES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "no requests": lambda c: c.pop("requests"),
    "no JSON": lambda c: c.update(requests=np.zeros(3, np.uint8)),
    "a task without scores": lambda c: c.pop("scores_1"),
    "too few scores": lambda c: c.update(scores_0=c["scores_0"][:-1]),
    "a group of strangers": change(together=[[0, 2]]),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_file_is_refused(case: str, tmp_path: Path) -> None:
    path = written(tmp_path / "g.npz")
    with np.load(path) as file:
        content = dict(file)
    DAMAGES[case](content)
    np.savez(path, **content)
    with pytest.raises(VerifyError, match=r"g\.npz: is no golden file, or a damaged one"):
        read_golden(path)


def test_a_truncated_file_and_no_file_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "g.npz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(VerifyError, match="damaged"):
        read_golden(path)
    path.write_bytes(b"")
    with pytest.raises(VerifyError, match="damaged"):
        read_golden(path)
    with pytest.raises(VerifyError, match="cannot be read: No such file"):
        read_golden(tmp_path / "other.npz")


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    np.savez(path, about=np.array([{"format": 1}], object), requests=np.array([object()], object))
    with pytest.raises(VerifyError, match="damaged"):
        read_golden(path)


def test_another_format_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "g.npz")
    with np.load(path) as file:
        content = dict(file)
    change(format=2)(content)
    np.savez(path, **content)
    with pytest.raises(VerifyError, match="of format 2"):
        read_golden(path)


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    bad = replace(GOLDEN, requests=[{"user": {"x": object()}, "items": {}}])
    with pytest.raises(TypeError):
        write_golden(bad, tmp_path / "g.npz")
    with pytest.raises(VerifyError, match="cannot be written"):
        write_golden(GOLDEN, tmp_path / "missing" / "g.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"saved_model_sha256": "cd" * 32}, "another SavedModel"),
        ({"signature": "other"}, "signature = serving_default"),
        ({"spec": {"buckets": [2, 8], "defaults": {"x": [1.5]}}}, r"buckets = \[2, 4\].*\[2, 8\]"),
        ({"spec": {"buckets": [2, 4]}}, r"defaults = \{'x': \[1\.5\]\}.*None"),
        ({"spec": None}, "buckets"),
    ],
)
def test_another_build_is_refused(change: dict[str, Any], words: str) -> None:
    refuse_other_build(GOLDEN, Path("g.npz"), {"source": SOURCE})
    with pytest.raises(VerifyError, match=rf"g\.npz: was recorded .*{words}.*record it again"):
        refuse_other_build(GOLDEN, Path("g.npz"), {"source": SOURCE | change})


def test_a_golden_file_needs_no_build_time_package() -> None:
    """What the GPU host imports: none of TensorFlow, ONNX Runtime, tf2onnx."""
    program = (
        "import sys\n"
        "for name in ('tensorflow', 'onnxruntime', 'tf2onnx', 'keras', 'onnx'): sys.modules[name] = None\n"
        "import bireme.verify.verify, bireme.verify.text, bireme.cli\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
