"""The request contract through the real server, over gRPC and HTTP, with nothing but tritonclient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from bad_requests import BAD, for_users, with_candidates
from served_helpers import PROTOCOLS, TOLERANCE, Bare, Original, Protocol, Tensors, texts
from tritonclient.utils import InferenceServerException

from bireme.server.process import TritonServer
from bireme.synthetic import edge_counts

pytestmark = pytest.mark.triton

Send = Callable[..., np.ndarray]


@pytest.fixture(params=PROTOCOLS)
def send(request: pytest.FixtureRequest, server: TritonServer) -> Bare:
    return Bare(server, request.param)


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_what_the_server_says_about_itself(server: TritonServer) -> None:
    metadata = Bare(server, "http").client.get_model_metadata("obd")
    shapes = {entry["name"]: (entry["datatype"], entry["shape"]) for entry in metadata["inputs"]}
    assert shapes["hour"] == ("INT64", [-1, 1])
    assert shapes["recent_items"] == ("BYTES", [-1, -1])
    assert shapes["item_id"] == ("BYTES", [-1, -1])
    assert shapes["affinity"] == ("FP32", [-1, -1])
    assert metadata["outputs"] == [{"name": "click", "datatype": "FP32", "shape": [-1, -1]}]


@pytest.mark.parametrize("count", edge_counts((20, 80, 160, 512)))
def test_exactly_as_many_scores_as_candidates_at_every_bucket_edge(
    count: int, send: Send, tensors: Tensors, original: Original
) -> None:
    request = with_candidates(tensors, count)
    same(send(request), original.scores(request))


def test_these_are_the_edges_of_the_model(plan) -> None:
    assert plan.buckets == (20, 80, 160, 512)


@pytest.mark.parametrize("users", [1, 2, 16])
def test_several_users_in_one_request(users: int, send: Send, tensors: Tensors, original: Original) -> None:
    request = for_users(tensors, users)
    request["hour"] = np.arange(users).reshape(users, 1)
    request["affinity"] = np.linspace(0, 3, users * 80, dtype=np.float32).reshape(users, 80)
    scores = send(request)
    assert scores.shape == (users, 80)
    same(scores, original.scores(request))


GOOD: dict[str, Callable[[Tensors], Tensors]] = {
    "no affinity": lambda t: {name: a for name, a in t.items() if name != "affinity"},
    "no history": lambda t: {name: a for name, a in t.items() if name != "recent_items"},
    "neither": lambda t: {name: a for name, a in t.items() if name not in ("affinity", "recent_items")},
    "an empty history": lambda t: t | {"recent_items": texts([])},
    "a history of one": lambda t: t | {"recent_items": texts([b"all-3"])},
    "a history of padding only": lambda t: t | {"recent_items": texts([b""] * 5)},
    "10,000 items in the history": lambda t: t | {"recent_items": np.tile(t["recent_items"], (1, 500))},
    "unknown strings": lambda t: t | {"item_id": texts([b"?%d" % i for i in range(80)])},
    "unknown users": lambda t: t | {f"user_feature_{i}": texts([b"\xe6\x9c\xaa"]) for i in range(4)},
    "empty strings": lambda t: t | {"item_feature_1": texts([b""] * 80), "user_feature_2": texts([b""])},
    "a string of 70 kB": lambda t: t | {"item_feature_2": texts([b"x" * 70_000] + [b"y"] * 79)},
    "a NUL at the end": lambda t: t | {"item_id": texts([b"all-3\0"] * 80)},
    "hour 0": lambda t: t | {"hour": np.array([[0]])},
    "hour 23": lambda t: t | {"hour": np.array([[23]])},
    "large numbers": lambda t: t | {"affinity": np.full((1, 80), 1e30, np.float32)},
    "tiny numbers": lambda t: t | {"affinity": np.full((1, 80), 1e-45, np.float32)},
}


@pytest.mark.parametrize("case", GOOD)
def test_odd_but_valid_requests_get_the_originals_scores(
    case: str, send: Send, tensors: Tensors, original: Original
) -> None:
    request = GOOD[case](tensors)
    same(send(request), original.scores(request))


def test_a_default_is_what_sending_it_gives(send: Send, tensors: Tensors) -> None:
    explicit = tensors | {"affinity": np.zeros((1, 80), np.float32), "recent_items": texts([])}
    assert np.array_equal(send(GOOD["neither"](tensors)), send(explicit))


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_told_what_is_wrong(case: str, send: Bare, tensors: Tensors) -> None:
    change, message = BAD[case]
    with pytest.raises(InferenceServerException, match=message) as caught:
        send(change(tensors))
    assert caught.value.status() in ("StatusCode.INVALID_ARGUMENT", "400")
    assert "Traceback" not in caught.value.message()
    assert "model.py" not in caught.value.message()
    assert send(tensors).shape == (1, 80)


@pytest.mark.parametrize("name", ["hour", "user_feature_0", "item_id", "item_feature_0"])
def test_a_missing_feature_is_named(name: str, send: Bare, tensors: Tensors) -> None:
    del tensors[name]
    with pytest.raises(InferenceServerException, match=f"feature '{name}' is missing and has no default"):
        send(tensors)


@pytest.mark.parametrize("data", [b"\xff\xff\0\0ab", b"", b"ab", b"\1\0\0\0a\1\0\0\0b"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_strings_that_are_not_encoded_as_such_are_refused(
    protocol: Protocol, data: bytes, server: TritonServer, tensors: Tensors
) -> None:
    """Length prefixes that lie: Triton checks them, so that no model.py has to."""
    send = Bare(server, protocol)
    module = send._module
    inputs = []
    for name, array in tensors.items():
        kind = "BYTES" if array.dtype == object else {"int64": "INT64", "float32": "FP32"}[str(array.dtype)]
        entry = module.InferInput(name, list(array.shape), kind)
        entry.set_data_from_numpy(array)
        if name == "user_feature_0":
            if protocol == "grpc":
                entry._raw_content = data
            else:
                entry._raw_data = data
                entry._parameters["binary_data_size"] = len(data)
        inputs.append(entry)
    with pytest.raises(InferenceServerException, match=r"string .*'user_feature_0'"):
        send.client.infer("obd", inputs)
    assert send(tensors).shape == (1, 80)


@pytest.mark.parametrize("count", [0, 513])
def test_the_dnn_asked_directly_refuses_what_no_bucket_holds(count: int, send: Bare, plan) -> None:
    request = {
        "user": np.zeros((1, plan.user_width), np.float32),
        "items": np.zeros((1, count, plan.item_width), np.float32),
    }
    with pytest.raises(InferenceServerException, match=rf"{count} candidates; a request must have 1 to 512$"):
        send(request, "obd_dnn")
