"""The client against a server of its own, which shows what arrives; the real one is in tests/served."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Literal

import grpc
import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, deserialize_bytes_tensor

from bireme.client import RankingClient, _unreachable
from bireme.errors import ClientError
from bireme_runtime.plan import Feature

Protocol = Literal["grpc", "http"]
FEATURES = (
    Feature("hour", "user", "int64"),
    Feature("recent_items", "user", "string", -1, default=[]),
    Feature("item_id", "item", "string"),
    Feature("price", "item", "float32", default=0.0),
    Feature("sizes", "item", "int32", 2, default=[0, 0]),
    Feature("sold", "item", "bool", default=False),
)
_NUMPY = {"INT64": np.int64, "INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}


def ensemble(name: str, features: tuple[Feature, ...] = FEATURES) -> Any:
    config = model_config_pb2.ModelConfig(name=name, platform="ensemble")
    config.ensemble_scheduling.step.add(model_name=f"{name}_preprocess")
    config.output.add(name="click")
    config.output.add(name="buy")
    described = json.dumps([asdict(feature) for feature in features])
    config.parameters["bireme_features"].string_value = described
    return config


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Scores are hour + price (`click`) and its negative (`buy`); remembers what it was asked."""

    def __init__(self) -> None:
        self.configs = {"shop": ensemble("shop"), "shop_preprocess": model_config_pb2.ModelConfig()}
        self.received: list[dict[str, np.ndarray[Any, Any]]] = []
        self.configs_asked = 0
        self.error: tuple[grpc.StatusCode, str] | None = None

    def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = service_pb2.ModelStatisticsResponse()
        for name in self.configs:
            response.model_stats.add(name=name)
        return response

    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.configs_asked += 1
        if request.name not in self.configs:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.name}' is not found"
            )
        return service_pb2.ModelConfigResponse(config=self.configs[request.name])

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.error is not None:
            context.abort(*self.error)
        tensors = {}
        for entry, raw in zip(request.inputs, request.raw_input_contents, strict=True):
            flat = (
                deserialize_bytes_tensor(raw)
                if entry.datatype == "BYTES"
                else np.frombuffer(raw, _NUMPY[entry.datatype])
            )
            tensors[entry.name] = flat.reshape(tuple(entry.shape))
        self.received.append(tensors)
        scores = (tensors["hour"] + tensors.get("price", np.zeros(tensors["item_id"].shape))).astype(
            np.float32
        )
        response = service_pb2.ModelInferResponse()
        for name, values in (("buy", -scores), ("click", scores)):
            response.outputs.add(name=name, datatype="FP32", shape=scores.shape)
            response.raw_output_contents.append(values.tobytes())
        return response


@pytest.fixture
def triton() -> Iterator[FakeTriton]:
    server, fake = grpc.server(ThreadPoolExecutor(8)), FakeTriton()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    fake.url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"  # type: ignore[attr-defined]
    server.start()
    yield fake
    server.stop(None)


@pytest.fixture
def client(triton: Any) -> Iterator[RankingClient]:
    with RankingClient(triton.url) as client:
        yield client


def test_scores_of_every_task_in_the_order_of_the_candidates(client: RankingClient) -> None:
    scores = client.rank({"hour": 3}, {"item_id": ["a", "b", "c"], "price": [0.5, 2.0, 1.0]})
    assert list(scores) == ["click", "buy"]  # the ensemble's order, whatever the answer's
    assert scores["click"].dtype == np.float32
    assert scores["click"].tolist() == [3.5, 5.0, 4.0]
    assert scores["buy"].tolist() == [-3.5, -5.0, -4.0]
    assert client.tasks == ("click", "buy")
    assert client.features == FEATURES


FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"hour": 3, "recent_items": ["é", "b"]},
        {"item_id": ["x", "y"], "price": [1, 2.5], "sizes": [[1, 2], [3, 4]], "sold": [True, False]},
    ),
    (
        {"hour": np.int32(3), "recent_items": ("é".encode(), b"b")},
        {"item_id": (b"x", "y"), "price": (1.0, 2.5), "sizes": ((1, 2), (3, 4)), "sold": (1, 0)},
    ),
    (
        {"hour": np.array(3, np.int16), "recent_items": np.array(["é", "b"])},
        {
            "item_id": np.array([b"x", b"y"]),
            "price": np.array([1, 2.5], np.float64),
            "sizes": np.array([[1, 2], [3, 4]]),
            "sold": np.array([True, False]),
        },
    ),
    (
        {"hour": True + 2, "recent_items": np.array(["é", b"b"], object)},
        {
            "item_id": np.array(["x", "y"], object),
            "price": np.array([1, 2.5], np.float16),
            "sizes": [np.array([1, 2]), np.array([3, 4])],
            "sold": [np.True_, np.False_],
        },
    ),
]


@pytest.mark.parametrize(("user", "items"), FORMS)
def test_lists_tuples_numpy_text_and_bytes_arrive_alike(
    user: dict[str, Any], items: dict[str, Any], client: RankingClient, triton: FakeTriton
) -> None:
    client.rank(user, items)
    (found,) = triton.received
    assert found["hour"].tolist() == [[3]]
    assert found["recent_items"].tolist() == [["é".encode(), b"b"]]
    assert found["item_id"].tolist() == [[b"x", b"y"]]
    assert found["price"].dtype == np.float32
    assert found["price"].tolist() == [[1.0, 2.5]]
    assert found["sizes"].dtype == np.int32
    assert found["sizes"].tolist() == [[[1, 2], [3, 4]]]
    assert found["sold"].tolist() == [[True, False]]


def test_features_left_out_stay_out_and_empty_ones_are_empty(
    client: RankingClient, triton: FakeTriton
) -> None:
    client.rank({"hour": 1}, {"item_id": ["a"]})
    client.rank({"hour": 1, "recent_items": []}, {"item_id": ["a"]})
    assert sorted(triton.received[0]) == ["hour", "item_id"]
    assert triton.received[1]["recent_items"].shape == (1, 0)


def test_no_candidates_are_for_the_server_to_refuse(client: RankingClient, triton: FakeTriton) -> None:
    assert client.rank({"hour": 1}, {"item_id": [], "price": []})["click"].shape == (0,)
    assert triton.received[0]["item_id"].shape == (1, 0)
    assert triton.received[0]["price"].shape == (1, 0)


@pytest.mark.parametrize(
    ("user", "items", "message"),
    [
        (
            {"hours": 1},
            {"item_id": ["a"]},
            r"feature 'hours': is not one of .* user features .*mean 'hour'\?",
        ),
        ({"hour": 1}, {"itemid": ["a"]}, r"feature 'itemid': .*item features .*did you mean 'item_id'\?"),
        ({"hour": 1, "price": 2.0}, {"item_id": ["a"]}, "feature 'price': .*it belongs under 'items'"),
        ({}, {"item_id": ["a"], "hour": [1]}, "feature 'hour': .*it belongs under 'user'"),
        ({"zzz": 1}, {"item_id": ["a"]}, "feature 'zzz': .*user takes: hour, recent_items"),
        ({"hour": "3"}, {"item_id": ["a"]}, "feature 'hour': does not hold int64 values: text is not int64"),
        ({"hour": 3.0}, {"item_id": ["a"]}, "feature 'hour': does not hold int64 values: float64"),
        ({"hour": None}, {"item_id": ["a"]}, "feature 'hour': does not hold int64 values"),
        ({"hour": 2**64}, {"item_id": ["a"]}, "feature 'hour': does not hold int64 values"),
        ({"hour": [3]}, {"item_id": ["a"]}, r"feature 'hour': has 1 dimensions \(give one value\)"),
        ({"hour": 3}, {"item_id": "a"}, r"feature 'item_id': has 0 dimensions \(give a list\)"),
        ({"hour": 3}, {"item_id": [1, 2]}, "feature 'item_id': holds int where strings are expected"),
        ({"hour": 3}, {"item_id": ["a", None]}, "feature 'item_id': holds NoneType where strings"),
        ({"hour": 3}, {"item_id": ["a"], "sizes": [[1, 2**31]]}, "feature 'sizes': does not hold int32"),
        ({"hour": 3}, {"item_id": ["a"], "price": ["1"]}, "feature 'price': does not hold float32 values"),
        ({"hour": 3}, {"item_id": ["a"], "sizes": [[1, 2], [3]]}, "feature 'sizes': does not hold int32"),
        ({"hour": 3}, {"item_id": ["a"], "sizes": [1]}, r"'sizes': has 1 dimensions \(give a list of lists"),
        ({"hour": 3, "recent_items": "ab"}, {"item_id": ["a"]}, "'recent_items': has 0 dimensions"),
        ({"hour": 3, "recent_items": [["a"], ["b", "c"]]}, {"item_id": ["a"]}, "'recent_items'.*unequal"),
        ({"hour": 3}, {"item_id": ["\ud800"]}, "feature 'item_id': does not hold strings"),
        ({}, {"item_id": ["a"]}, r"feature 'hour': is missing and has no default \(give it under 'user'\)"),
        ({"hour": 3}, {"price": [1]}, r"'item_id': is missing and has no default \(give it under 'items'\)"),
    ],
)
def test_a_malformed_request_is_refused_before_it_is_sent(
    user: dict[str, Any], items: dict[str, Any], message: str, client: RankingClient, triton: FakeTriton
) -> None:
    with pytest.raises(ClientError, match=message):
        client.rank(user, items)
    assert triton.received == []


def tensors(**changes: Any) -> dict[str, Any]:
    good = {"hour": np.array([[1], [2]]), "item_id": np.array([[b"a"] * 3, [b"b"] * 3], object)}
    return {name: array for name, array in (good | changes).items() if array is not None}


def test_infer_takes_several_users(client: RankingClient) -> None:
    scores = client.infer(tensors(price=np.float32([[1, 2, 3], [4, 5, 6]])))
    assert scores["click"].tolist() == [[2, 3, 4], [6, 7, 8]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prise": np.ones((2, 3), np.float32)}, "feature 'prise': is not one of the model's"),
        ({"hour": None}, "feature 'hour': is missing"),
        (
            {"price": np.ones((2, 3))},
            r"feature 'price': cannot be sent: .*FP64.*FP32.* \(give a numpy",
        ),
        ({"item_id": np.ones((2, 3))}, "feature 'item_id': cannot be sent: .*BYTES.*numpy array of string"),
        ({"hour": [[1], [2]]}, "feature 'hour': cannot be sent: .*list.*numpy array of int64"),
    ],
)
def test_infer_refuses_other_tensors_than_the_models(
    changes: dict[str, Any], message: str, client: RankingClient, triton: FakeTriton
) -> None:
    with pytest.raises(ClientError, match=message):
        client.infer(tensors(**changes))
    assert triton.received == []


def test_the_servers_words_reach_the_user_without_its_asides(
    client: RankingClient, triton: FakeTriton
) -> None:
    said = "[request id: <id_unknown>] input 'x'\nis odd. NOTE: Setting a non-zero max_batch_size in …"
    triton.error = (grpc.StatusCode.INVALID_ARGUMENT, said)
    with pytest.raises(ClientError) as caught:
        client.rank({"hour": 1}, {"item_id": ["a"]})
    assert str(caught.value) == f"{triton.url}: input 'x' is odd."  # type: ignore[attr-defined]


def test_features_are_asked_for_once(client: RankingClient, triton: FakeTriton) -> None:
    for _ in range(3):
        client.rank({"hour": 1}, {"item_id": ["a"]})
    assert triton.configs_asked == 1


def test_threads_may_share_a_client(client: RankingClient) -> None:
    def ask(hour: int) -> list[float]:
        count = 1 + hour % 7
        scores = client.rank({"hour": hour}, {"item_id": ["a"] * count, "price": list(range(count))})
        return scores["click"].tolist()

    with ThreadPoolExecutor(16) as pool:
        for hour, scores in enumerate(pool.map(ask, range(300))):
            assert scores == [hour + price for price in range(1 + hour % 7)]


def test_one_of_several_ensembles_must_be_named(triton: Any) -> None:
    triton.configs |= {"toys": ensemble("toys"), "toys_preprocess": model_config_pb2.ModelConfig()}
    with pytest.raises(ClientError, match=r"serves 2 ensembles \(shop, toys\) \(name one"):
        RankingClient(triton.url).rank({"hour": 1}, {"item_id": ["a"]})
    assert RankingClient(triton.url, "toys").rank({"hour": 1}, {"item_id": ["a"]})["click"].tolist() == [1]


def fused(name: str) -> Any:
    """An ensemble's configuration without the ensemble: one model with no steps."""
    config = ensemble(name)
    config.ClearField("ensemble_scheduling")
    config.backend = "python"
    return config


def test_a_model_of_the_fused_layout_is_found_and_ranks(triton: Any) -> None:
    triton.configs = {"resnet": model_config_pb2.ModelConfig(name="resnet"), "shop": fused("shop")}
    assert RankingClient(triton.url).rank({"hour": 1}, {"item_id": ["a"]})["click"].tolist() == [1]
    assert RankingClient(triton.url, "shop").features == FEATURES


def test_an_ensemble_and_a_fused_model_are_told_apart_from_parts(triton: Any) -> None:
    triton.configs |= {"shop_user": ensemble("shop_user"), "shop_dnn": model_config_pb2.ModelConfig()}
    assert RankingClient(triton.url).features == FEATURES
    triton.configs["toys"] = fused("toys")
    with pytest.raises(ClientError, match=r"serves 2 ensembles \(shop, toys\) \(name one"):
        RankingClient(triton.url).features  # noqa: B018


def test_a_server_without_an_ensemble_is_told_apart(triton: Any) -> None:
    triton.configs = {"resnet": model_config_pb2.ModelConfig(name="resnet")}
    with pytest.raises(ClientError, match=rf"{triton.url}: serves no ensemble .*bireme build"):
        RankingClient(triton.url).features  # noqa: B018


def test_other_models_are_refused(triton: Any) -> None:
    foreign = ensemble("foreign")
    foreign.parameters.clear()
    triton.configs |= {"foreign": foreign}
    with pytest.raises(ClientError, match="model 'foreign': does not describe its features"):
        RankingClient(triton.url, "foreign").features  # noqa: B018
    with pytest.raises(ClientError, match="model 'shop_preprocess': is not an ensemble"):
        RankingClient(triton.url, "shop_preprocess").features  # noqa: B018
    with pytest.raises(ClientError, match="unknown model: 'shopp' is not found"):
        RankingClient(triton.url, "shopp").features  # noqa: B018


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "127.0.0.1", "", "127.0.0.1:99999", "127.0.0.1:0", ":8001", "host:port"]
)
def test_an_address_that_cannot_be_one_is_refused_at_once(url: str, protocol: Protocol) -> None:
    with pytest.raises(ClientError, match=r"is not host:port \(for example 127\.0\.0\.1:8001\)"):
        RankingClient(url, protocol=protocol)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ClientError, match="protocol 'tcp': is unknown"):
        RankingClient("127.0.0.1:8001", protocol="tcp")  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_where_nothing_listens_the_answer_is_quick_and_clear(protocol: Protocol) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        url = f"127.0.0.1:{taken.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(
            ClientError, match=rf"{url}: .*refused.*is tritonserver running at {url} \({protocol}"
        ):
            RankingClient(url, protocol=protocol).rank({}, {})
        assert time.monotonic() - begin < 2


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_host_without_an_address_is_named(protocol: Protocol) -> None:
    with pytest.raises(ClientError, match=r"nowhere\.invalid:8001.*is tritonserver running at"):
        RankingClient("nowhere.invalid:8001", protocol=protocol, timeout=5).rank({}, {})


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_server_that_says_nothing_is_given_up_on(protocol: Protocol) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"127.0.0.1:{mute.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(ClientError, match=r"gave no answer within 0\.5 s.*`timeout` sets how long"):
            RankingClient(url, protocol=protocol, timeout=0.5).rank({}, {})
        assert time.monotonic() - begin < 3


def test_http_in_a_thread_that_did_not_make_the_client() -> None:
    """tritonclient itself fails there with an error about greenlets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = RankingClient(f"127.0.0.1:{taken.getsockname()[1]}", protocol="http")
        said: list[str] = []

        def ask() -> None:
            try:
                client.rank({}, {})
            except ClientError as error:
                said.append(str(error))

        ask()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(10)
        client.close()
        client.close()  # harmless
    assert len(said) == 2
    assert said[0] == said[1]
    assert "refused" in said[0]


@pytest.mark.parametrize("status", ["StatusCode.INVALID_ARGUMENT", "400"])
def test_a_server_that_answers_is_not_said_to_be_away(status: str) -> None:
    """Whatever word its answer holds: a feature may be called `connection`."""
    refused = InferenceServerException("feature 'connection': is missing", status=status)
    assert not _unreachable(refused, str(refused))
    away = InferenceServerException("failed to connect to all addresses", status="StatusCode.UNAVAILABLE")
    assert _unreachable(away, str(away))
