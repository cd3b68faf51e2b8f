"""The probe without a server: bytes of a request, whose fault it is, whether scores can be believed."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import serialize_byte_tensor

from bireme.errors import ClientError, ServerError
from bireme.probe.fault import Counts, Step, last_reached, named_in, standing_still
from bireme.probe.probe import until_ready
from bireme.probe.questions import questions
from bireme.probe.scores import Golden, find_fault
from bireme.probe.tensors import decode, encode
from bireme.probe.transport import connect
from bireme.requests import to_tensors
from bireme_runtime.plan import Feature

FEATURES = [
    Feature("country", "user", "string"),
    Feature("history", "user", "string", length=-1),
    Feature("age", "user", "float32"),
    Feature("hour", "user", "int64"),
    Feature("price", "item", "float64"),
    Feature("shelf", "item", "int32"),
    Feature("new", "item", "bool"),
    Feature("tags", "item", "string", length=2),
]
REQUEST = {
    "user": {"country": "é", "history": ["a", ""], "age": 30, "hour": -(2**40)},
    "items": {
        "price": [1.5, 2],
        "shelf": [7, -8],
        "new": [True, False],
        "tags": [["x", "y"], ["", "zz"]],
    },
}
STEPS = (
    Step("m_preprocess", frozenset({"price"}), frozenset({"items"})),
    Step("m_dnn", frozenset({"items"}), frozenset({"click"})),
)


def described(features: list[Feature]) -> list[dict[str, Any]]:
    return [{"name": f.name, "side": f.side, "dtype": f.dtype} for f in features]


def test_the_bytes_are_those_of_the_client() -> None:
    arrays = to_tensors(FEATURES, REQUEST)
    tensors = encode(described(FEATURES), REQUEST)
    assert [tensor.name for tensor in tensors] == [*arrays]
    for tensor in tensors:
        array = arrays[tensor.name]
        expected = serialize_byte_tensor(array).item() if array.dtype == object else array.tobytes()
        assert (tensor.shape, tensor.data) == (array.shape, expected), tensor.name


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("user", "age", "thirty"),
        ("user", "country", 5),
        ("user", "hour", 1.5),
        ("items", "shelf", [2**40, 1]),
        ("items", "tags", [["x"], ["y", "z"]]),
        ("items", "price", [None]),
        ("items", "colour", ["red"]),
    ],
)
def test_what_does_not_fit_is_named(part: str, name: str, value: object) -> None:
    request: dict[str, dict[str, object]] = {"user": {}, "items": {}}
    request[part][name] = value
    with pytest.raises(ClientError, match=f"feature '{name}'"):
        encode(described(FEATURES), request)


def test_outputs_of_every_width() -> None:
    for dtype, kind in (("FP16", np.float16), ("FP32", np.float32), ("FP64", np.float64)):
        assert decode(dtype, np.array([0.5, np.inf], kind).tobytes()) == [0.5, np.inf]
    assert decode("INT64", struct.pack("<q", 1)) is None


@pytest.mark.parametrize(
    ("message", "model"),
    [
        ("in ensemble 'm', Stub process 'm_dnn_0_1' is not healthy.", "m_dnn"),
        ("Failed to process the request(s) for model 'm_preprocess_0_0', message: x", "m_preprocess"),
        ("model m_dnn_user_0_0 failed", None),
        ("in ensemble 'm', feature 'm_dnnx' is empty", None),
    ],
)
def test_a_step_is_named_by_an_error(message: str, model: str | None) -> None:
    assert named_in(message, STEPS) == model


def test_counters_tell_the_step() -> None:
    before = {"m_preprocess": Counts(5, 1), "m_dnn": Counts(5, 0)}
    reached_first = {"m_preprocess": Counts(6, 1), "m_dnn": Counts(5, 0)}
    reached_both = {"m_preprocess": Counts(6, 1), "m_dnn": Counts(6, 0)}
    busy = {"m_preprocess": Counts(9, 1), "m_dnn": Counts(9, 0)}
    assert last_reached(STEPS, before, reached_first) == "m_preprocess"
    assert last_reached(STEPS, before, reached_both) == "m_dnn"
    assert last_reached(STEPS, before, busy) is None
    assert standing_still(STEPS, before, before) == "m_preprocess"
    assert standing_still(STEPS, before, reached_first) == "m_dnn"
    assert standing_still(STEPS, before, busy) is None
    # The order in which the configuration lists the steps does not matter.
    assert standing_still(STEPS[::-1], before, before) == "m_preprocess"


def test_scores() -> None:
    golden = Golden({"click": [0.1, 0.2]}, {"click": 1e-3})
    assert find_fault("click", [0.1, 0.2005], 2, golden) is None
    assert find_fault("other", [9.0, 9.0], 2, golden) is None
    assert "gives other scores" in (find_fault("click", [0.1, 0.3], 2, golden) or "")
    assert "for 3 candidates" in (find_fault("click", [0.1, 0.2], 3, None) or "")
    assert "inf for candidate 1" in (find_fault("click", [0.1, float("inf")], 2, None) or "")
    assert "where 2 are recorded" in (find_fault("click", [0.1], 0, golden) or "")


def test_what_to_ask(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="holds no ensemble"):
        questions(tmp_path, "", None)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bireme.json").write_text(json.dumps({"models": [f"{name}_dnn", name]}))
        (tmp_path / name / "example_request.json").write_text(json.dumps(REQUEST))
    assert [(q.model, q.parts, q.golden) for q in questions(tmp_path, "", None)] == [
        ("a", ("a_dnn",), None),
        ("b", ("b_dnn",), None),
    ]
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"user": {}, "items": {"price": [1.0]}}))
    with pytest.raises(ClientError, match="could be for any of a, b"):
        questions(tmp_path, "", mine)
    (asked,) = questions(tmp_path / "nowhere", "a", mine)
    assert asked.request == {"user": {}, "items": {"price": [1.0]}}
    mine.write_text("[]")
    with pytest.raises(ClientError, match="is not a request"):
        questions(tmp_path, "a", mine)
    (tmp_path / "b" / "example_scores.json").write_text('{"scores": {"click": [1]}}')
    with pytest.raises(ClientError, match="holds no recorded scores"):
        questions(tmp_path, "b", None)


@pytest.mark.parametrize("url", ["localhost", "http://localhost:8000", "localhost:99999", ":8000"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ClientError, match="is not host:port"):
        connect(url, "http")


def test_waiting_ends_and_gives_the_last_reason() -> None:
    reasons = iter([ServerError("a", "first"), ServerError("a", "second"), ServerError("a", "third")])

    def ask() -> None:
        raise next(reasons)

    with pytest.raises(ServerError, match="third"):
        until_ready(ask, wait=0.25, pause=0.1)

    def hopeless() -> None:
        raise ClientError("request", "is broken")

    with pytest.raises(ClientError):
        until_ready(hopeless, wait=60.0)


def test_it_starts_without_what_is_slow_to_import() -> None:
    """Kubernetes starts it every few seconds."""
    code = "import sys, bireme.cli, bireme.probe.questions, bireme.probe.over_http; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"tensorflow", "numpy", "grpc", "tritonclient", "pydantic", "google.protobuf"}
