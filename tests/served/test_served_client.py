"""How people call the server: our client, and tritonclient alone as the README shows it."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from bad_requests import ITEMS, with_candidates
from served_helpers import PROTOCOLS, TOLERANCE, Original, Protocol, Tensors, url_of

from bireme.client import RankingClient
from bireme.errors import ClientError
from bireme.requests import Request
from bireme.server.process import TritonServer

pytestmark = pytest.mark.triton

both = pytest.mark.parametrize("protocol", PROTOCOLS)


def cut(request: Request, count: int) -> dict[str, Any]:
    """The request with its first `count` candidates."""
    return {
        "user": dict(request["user"]),
        "items": {name: values[:count] for name, values in request["items"].items()},
    }


@both
def test_rank(
    protocol: Protocol, server: TritonServer, example: Request, tensors: Tensors, original: Original
) -> None:
    with RankingClient(url_of(server, protocol), protocol=protocol) as client:
        assert client.tasks == ("click",)
        assert {feature.name for feature in client.features if feature.side == "item"} == set(ITEMS)
        scores = client.rank(example["user"], example["items"])["click"]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, original.scores(tensors)[0], rtol=0, atol=TOLERANCE)


@both
def test_numpy_arrays_are_as_good_as_lists(
    protocol: Protocol, server: TritonServer, example: Request
) -> None:
    arrays = {
        part: {name: np.array(value) for name, value in example[part].items()} for part in ("user", "items")
    }
    with RankingClient(url_of(server, protocol), "obd", protocol) as client:
        listed = client.rank(example["user"], example["items"])["click"]
        np.testing.assert_allclose(
            client.rank(arrays["user"], arrays["items"])["click"], listed, rtol=0, atol=1e-6
        )


@both
def test_what_the_user_reads_when_a_request_is_refused(
    protocol: Protocol, server: TritonServer, example: Request
) -> None:
    with RankingClient(url_of(server, protocol), protocol=protocol) as client:
        none = cut(example, 0)
        with pytest.raises(ClientError) as caught:
            client.rank(none["user"], none["items"])
        assert "feature 'affinity' has 0 candidates; a request must have 1 to 512" in caught.value.message
        assert "<id_unknown>" not in caught.value.message
        with pytest.raises(ClientError, match="feature 'hour': the value gives id 24"):
            client.rank({**example["user"], "hour": 24}, example["items"])
        with pytest.raises(ClientError, match=r"unexpected shape for input 'hour'.*got \[1,2\]\.?$"):
            client.infer(_tensors(client, example) | {"hour": np.array([[1, 2]])})
        assert client.rank(example["user"], example["items"])["click"].shape == (80,)


def _tensors(client: RankingClient, request: Request) -> Tensors:
    from bireme.requests import to_tensors

    return to_tensors(client.features, request)


@both
def test_one_client_in_many_threads(protocol: Protocol, server: TritonServer, example: Request) -> None:
    with RankingClient(url_of(server, protocol), protocol=protocol) as client:
        requests = [cut(example, count) for count in (1, 7, 20, 33, 80)]
        expected = [client.rank(r["user"], r["items"])["click"] for r in requests]

        def ask(turn: int) -> float:
            request = requests[turn % len(requests)]
            found = client.rank(request["user"], request["items"])["click"]
            return float(np.abs(found - expected[turn % len(requests)]).max())

        for _ in range(3):  # new threads each time
            with ThreadPoolExecutor(8) as pool:
                assert max(pool.map(ask, range(80))) <= 1e-6


@both
def test_a_late_answer_is_not_taken_for_the_next_one(
    protocol: Protocol, server: TritonServer, example: Request
) -> None:
    """The server stands still, the client gives up, the server goes on: answers find their own questions."""
    first, second = cut(example, 80), cut(example, 9)
    with RankingClient(url_of(server, protocol), protocol=protocol, timeout=0.7) as client:
        expected = client.rank(second["user"], second["items"])["click"]
        for _ in range(2):
            assert server.pid is not None
            os.kill(server.pid, signal.SIGSTOP)
            try:
                begin = time.monotonic()
                with pytest.raises(ClientError, match=r"gave no answer within 0\.7 s"):
                    client.rank(first["user"], first["items"])
                assert time.monotonic() - begin < 3
            finally:
                os.kill(server.pid, signal.SIGCONT)
            for _ in range(2):
                found = client.rank(second["user"], second["items"])["click"]
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    server.check()


@both
def test_callers_who_give_up_do_not_disturb_the_others(
    protocol: Protocol, server: TritonServer, tensors: Tensors, original: Original
) -> None:
    """Requests abandoned on the way, in the queue, in either model: what is answered is right."""
    large = with_candidates(tensors, 512)
    expected = {80: original.scores(tensors), 512: original.scores(large)}

    def ask(turn: int) -> tuple[int, float]:
        """(given up, largest difference): half of the callers have 0.5 to 4 ms of patience."""
        timeout = 0.0005 * 2**turn if turn < 4 else 30.0
        client = RankingClient(url_of(server, protocol), "obd", protocol, timeout)
        given_up, worst = 0, 0.0
        for step in range(60):
            request = large if turn < 4 or step % 2 else tensors
            try:
                found = client.infer(request)["click"]
            except ClientError as error:
                if turn >= 4 or "gave no answer within" not in error.message:
                    raise
                given_up += 1
            else:
                worst = max(worst, float(np.abs(found - expected[found.shape[1]]).max()))
        return given_up, worst

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(ask, range(8)))
    assert sum(given_up for given_up, _ in results)
    assert max(worst for _, worst in results) <= TOLERANCE
    server.check()


@both
def test_a_model_that_is_not_there(protocol: Protocol, server: TritonServer) -> None:
    url = url_of(server, protocol)
    with pytest.raises(ClientError, match=rf"{url}: Request for unknown model: 'shop' is not found"):
        RankingClient(url, "shop", protocol).features  # noqa: B018
    with pytest.raises(ClientError, match="model 'obd_dnn': is not an ensemble"):
        RankingClient(url, "obd_dnn", protocol).features  # noqa: B018


def test_the_wrong_protocols_port_ends_in_an_error(server: TritonServer) -> None:
    for url, protocol in ((server.http_url, "grpc"), (server.grpc_url, "http")):
        begin = time.monotonic()
        with pytest.raises(ClientError, match=url):
            RankingClient(url, protocol=protocol, timeout=2).features  # type: ignore[arg-type] # noqa: B018
        assert time.monotonic() - begin < 8


def _user_and_items(tensors: Tensors, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plain Python values, as an application has them."""
    values = {name: array[0].tolist() for name, array in with_candidates(tensors, count).items()}
    items = {name: values.pop(name) for name in ITEMS}
    return values, items


def test_bare_tritonclient_over_grpc(server: TritonServer, tensors: Tensors, original: Original) -> None:
    import tritonclient.grpc as triton

    user, items = _user_and_items(tensors, 12)
    n, seen = len(items["item_id"]), len(user["recent_items"])

    client = triton.InferenceServerClient(server.grpc_url)
    inputs = []
    for name, values, shape, kind, dtype in [
        ("hour", user["hour"], [1, 1], "INT64", np.int64),
        ("recent_items", user["recent_items"], [1, seen], "BYTES", np.object_),
        *((f"user_feature_{i}", user[f"user_feature_{i}"], [1, 1], "BYTES", np.object_) for i in range(4)),
        ("item_id", items["item_id"], [1, n], "BYTES", np.object_),
        ("affinity", items["affinity"], [1, n], "FP32", np.float32),
        ("item_feature_0", items["item_feature_0"], [1, n], "FP32", np.float32),
        *((f"item_feature_{i}", items[f"item_feature_{i}"], [1, n], "BYTES", np.object_) for i in (1, 2, 3)),
    ]:
        tensor = triton.InferInput(name, shape, kind)
        tensor.set_data_from_numpy(np.array(values, dtype).reshape(shape))
        inputs.append(tensor)
    scores = client.infer("obd", inputs).as_numpy("click")

    assert scores.shape == (1, n)
    np.testing.assert_allclose(scores, original.scores(with_candidates(tensors, 12)), rtol=0, atol=TOLERANCE)


def test_json_over_http_without_any_client_library(
    server: TritonServer, tensors: Tensors, original: Original
) -> None:
    """The same request as curl would send it."""
    import json
    from urllib.request import Request as Post
    from urllib.request import urlopen

    kinds = {"int64": "INT64", "float32": "FP32", "object": "BYTES"}
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": kinds[str(array.dtype)],
            "data": [v.decode() if isinstance(v, bytes) else v for v in array.ravel().tolist()],
        }
        for name, array in tensors.items()
    ]
    body = json.dumps({"inputs": inputs}).encode()
    with urlopen(Post(f"http://{server.http_url}/v2/models/obd/infer", data=body), timeout=10) as response:
        (output,) = json.load(response)["outputs"]
    assert (output["name"], output["shape"]) == ("click", [1, 80])
    np.testing.assert_allclose(output["data"], original.scores(tensors)[0], rtol=0, atol=TOLERANCE)
