import json

import dataset
import numpy as np
import pytest
import sample_requests


@pytest.fixture(scope="module")
def held_out(log):
    return log.on_days([6, 7])


@pytest.fixture(scope="module")
def requests(held_out):
    return sample_requests.draw(held_out, 120, seed=1)


def test_first_request_ranks_the_whole_catalog_for_a_user_with_history(requests, held_out):
    first = requests[0]
    assert first["items"]["item_id"] == [dataset.item_name("all", k) for k in range(80)]
    assert first["user"]["recent_items"]
    assert max(first["items"]["affinity"]) > 0
    assert list(first["user"]) == list(dataset.USER_FEATURES)
    assert list(first["items"]) == list(dataset.ITEM_FEATURES)


def test_requests_vary_as_promised(requests, held_out):
    sizes = [len(r["items"]["item_id"]) for r in requests]
    assert min(sizes) >= 1
    assert max(sizes) == 80
    assert len(set(sizes)) > 30
    assert any(not r["user"]["recent_items"] for r in requests)
    assert any(r["user"]["user_feature_1"].startswith("unseen") for r in requests)
    assert sum(max(r["items"]["affinity"]) > 0 for r in requests) > 10
    for request in requests:
        assert {len(column) for column in request["items"].values()} == {len(request["items"]["item_id"])}


def test_candidates_carry_their_own_item_features_and_this_users_affinity(requests, held_out):
    catalog = held_out.catalogs["all"].features
    items = requests[0]["items"]
    for name in ("item_feature_0", "item_feature_1", "item_feature_3"):
        assert items[name] == catalog[name].tolist()
    user = requests[0]["user"]
    rows = np.flatnonzero(
        np.logical_and.reduce(
            [held_out.features[f"user_feature_{k}"] == user[f"user_feature_{k}"] for k in range(4)]
        )
        & (held_out.campaign == "all")
    )
    assert any(np.array_equal(held_out.affinities[row], np.float32(items["affinity"])) for row in rows)


def test_same_seed_gives_same_requests(requests, held_out):
    assert sample_requests.draw(held_out, 120, seed=1) == requests
    assert sample_requests.draw(held_out, 120, seed=2) != requests


def test_file_reads_back(requests, tmp_path):
    path = tmp_path / "requests.jsonl"
    sample_requests.write(requests, path)
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == requests


def test_rows_repeat_the_user_only(requests):
    rows = sample_requests.request_rows(requests[0])
    history = requests[0]["user"]["recent_items"]
    assert rows["recent_items"].tolist() == [history] * 80
    assert rows["item_id"].tolist() == requests[0]["items"]["item_id"]
    assert (rows["hour"].dtype, rows["affinity"].dtype) == (np.int64, np.float32)
