"""The user side ahead of time, served: slices give the one-shot scores, and a wrong state never passes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from served_helpers import PROTOCOLS, TOLERANCE, Original, Protocol, in_parallel, url_of

from bireme.build import build
from bireme.client import RankingClient
from bireme.errors import ClientError
from bireme.requests import Request, to_tensors
from bireme.server.process import TritonServer
from bireme_runtime.plan import Plan

pytestmark = pytest.mark.triton
SLICE = 16


@pytest.fixture(scope="module")
def served(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """The example with its user side ahead."""
    repository = tmp_path_factory.mktemp("ahead")
    build(spec, repository, user_ahead=True)
    with TritonServer(repository, exit_timeout=0) as server:
        yield server


@pytest.fixture(params=PROTOCOLS)
def client(served: TritonServer, request: pytest.FixtureRequest) -> Iterator[RankingClient]:
    protocol: Protocol = request.param
    with RankingClient(url_of(served, protocol), protocol=protocol) as client:
        yield client


def slices(items: dict[str, list[Any]]) -> list[dict[str, list[Any]]]:
    count = len(next(iter(items.values())))
    return [{name: v[i : i + SLICE] for name, v in items.items()} for i in range(0, count, SLICE)]


def test_slices_give_the_scores_of_one_request(
    client: RankingClient, example: Request, original: Original, plan: Plan
) -> None:
    one_shot = client.rank(example["user"], example["items"])["click"]
    state = client.user(example["user"])
    parts = [client.rank_slice(state, items)["click"] for items in slices(dict(example["items"]))]
    assert [len(scores) for scores in parts] == [SLICE] * 5
    np.testing.assert_allclose(np.concatenate(parts), one_shot, rtol=0, atol=1e-6)
    expected = original.scores(to_tensors(plan.features, example))[0]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=0, atol=TOLERANCE)
    other = {**example["user"], "recent_items": []}
    assert np.abs(client.rank_slice(client.user(other), example["items"])["click"] - one_shot).max() > 1e-5


def test_parallel_slices_of_several_users_keep_their_states(served: TritonServer, example: Request) -> None:
    histories: list[list[str]] = [[], ["1"], ["2", "3"], ["4"] * 7, list(example["user"]["recent_items"])]
    with RankingClient(served.grpc_url) as client:
        users = [{**example["user"], "recent_items": history} for history in histories]
        expected = [client.rank(user, example["items"])["click"] for user in users]
        states = [client.user(user) for user in users]
        jobs = [
            partial(client.rank_slice, state, items)
            for state in states
            for items in slices(dict(example["items"]))
        ]
        found = [scores["click"] for scores in in_parallel(jobs)]
    for number, scores in enumerate(expected):
        mine = np.concatenate(found[5 * number : 5 * number + 5])
        np.testing.assert_allclose(mine, scores, rtol=0, atol=1e-6)


def test_a_wrong_state_is_refused_in_words_and_alone(client: RankingClient, example: Request) -> None:
    state = client.user(example["user"])
    good = client.rank_slice(state, example["items"])["click"]
    other = state.copy()
    other[0, 0] += 1
    for wrong, message in (
        (other, "'user_state' was made by another build of the model; ask 'obd_user' for a new one"),
        (state[:, :-1].copy(), "'user_state' has shape"),
    ):
        with pytest.raises(ClientError, match=message):
            client.rank_slice(wrong, example["items"])
    with pytest.raises(ClientError, match=r"'user_state'.*numpy array of float32"):
        client.rank_slice(state.astype(np.float64), example["items"])
    np.testing.assert_array_equal(client.rank_slice(state, example["items"])["click"], good)


@pytest.fixture(scope="module")
def other_spec(spec: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same SavedModel, compiled for other buckets."""
    lines = spec.read_text().splitlines()
    assert any(line.startswith("buckets:") for line in lines)
    changed = "\n".join("buckets: [100, 512]" if line.startswith("buckets:") else line for line in lines)
    for field in ("saved_model", "samples"):
        changed = changed.replace(f"{field}: ", f"{field}: {spec.parent.resolve()}/")
    path = tmp_path_factory.mktemp("other") / "bireme.yaml"
    path.write_text(changed)
    return path


def test_after_a_reload_old_states_are_refused_and_no_cache_holds_them(
    spec: Path, other_spec: Path, example: Request, tmp_path: Path
) -> None:
    build(spec, tmp_path / "repository", user_ahead=True)
    flags = ["--model-control-mode=explicit", "--load-model=*"]
    with (
        TritonServer(tmp_path / "repository", exit_timeout=0, flags=flags) as server,
        RankingClient(server.grpc_url) as client,
    ):
        old = client.user(example["user"])
        scores = client.rank_slice(old, example["items"])["click"]
        built = build(other_spec, tmp_path / "repository", user_ahead=True)
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as bare:
            for folder in built.folders:
                bare.load_model(folder.name)
        with pytest.raises(ClientError, match="was made by another build of the model"):
            client.rank_slice(old, example["items"])
        new = client.user(example["user"])
        assert new.shape == old.shape
        np.testing.assert_allclose(
            client.rank_slice(new, example["items"])["click"], scores, rtol=0, atol=1e-6
        )


def test_the_same_user_asked_again_comes_from_the_cache(served: TritonServer, example: Request) -> None:
    def counts() -> tuple[int, int, int]:
        with tritonclient.grpc.InferenceServerClient(served.grpc_url) as bare:
            models = {model.name: model for model in bare.get_inference_statistics().model_stats}
        whole = models["obd_user"].inference_stats
        return whole.cache_hit.count, whole.cache_miss.count, models["obd_dnn_user"].execution_count

    user = {**example["user"], "recent_items": ["only", "here"]}
    before = counts()
    with RankingClient(served.grpc_url) as client:
        states = [client.user(user) for _ in range(4)]
    hits, misses, executions = (after - first for after, first in zip(counts(), before, strict=True))
    assert (hits, misses, executions) == (3, 1, 1)
    assert all(np.array_equal(state, states[0]) for state in states)


def test_requests_are_refused_like_those_of_the_whole_model(client: RankingClient, example: Request) -> None:
    with pytest.raises(ClientError, match="feature 'user_feature_0': is missing and has no default"):
        client.user({"hour": 1})
    with pytest.raises(ClientError, match="feature 'nope': is not one of the model's user features"):
        client.user({**example["user"], "nope": 1})
    state = client.user(example["user"])
    with pytest.raises(ClientError, match=r"'affinity'.*finite"):
        client.rank_slice(state, {**example["items"], "affinity": [float("nan")] * 80})


def test_without_user_ahead_the_client_says_what_is_missing(server: TritonServer, example: Request) -> None:
    with (
        RankingClient(server.grpc_url) as client,
        pytest.raises(ClientError, match=r"model 'obd_user'.*--user-ahead"),
    ):
        client.user(example["user"])
