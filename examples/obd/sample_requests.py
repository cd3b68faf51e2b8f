"""Ranking requests, one user and N candidates each, cut out of logged impressions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from dataset import COHORT, ITEM_FEATURES, USER_FEATURES, Catalog, Log

__all__ = ["draw", "request_rows", "write"]

Request = dict[str, dict[str, Any]]
AFFINE_EVERY = 3
"""Every so many requests come from a user with an affinity to some item (rare in the log) …"""
NEW_USER_EVERY = 12
"""… or from a user without history …"""
UNSEEN_EVERY = 25
"""… or carry strings that the model never saw in training."""


def draw(log: Log, count: int, seed: int = 0) -> list[Request]:
    """Sample requests from a log.

    The first one is the example request: a user with a history and an affinity, and every item of campaign
    "all", in id order. Each of the others ranks a random choice of its campaign's items in random order.

    Args:
        log: held-out impressions; each request takes its user from one of them.
        count: how many requests, at least 1.
        seed: of the choice of users and candidates.
    """
    rng = np.random.default_rng(seed)
    affine = log.affinities.any(axis=1)
    example = np.flatnonzero(affine & (log.campaign == "all") & (log.features["recent_items"][:, 0] != ""))
    requests = [_request(log, int(rng.choice(example)), np.arange(log.catalogs["all"].size))]
    for number in range(1, count):
        row = int(rng.choice(np.flatnonzero(affine) if number % AFFINE_EVERY == 0 else log.size))
        items = log.catalogs[log.campaign[row]].size
        wanted = int(rng.integers(1, items + 1))
        request = _request(log, row, rng.permutation(items)[:wanted])
        if number % NEW_USER_EVERY == 0:
            request["user"]["recent_items"] = []
        if number % UNSEEN_EVERY == 0:
            _make_unseen(request, number)
        requests.append(request)
    return requests


def request_rows(request: Request) -> dict[str, np.ndarray[Any, Any]]:
    """The row-wise inputs of the model for one request: N rows, the user repeated.

    Returns:
        feature → array [N] (`recent_items`: [N, history]); strings as objects, numbers as int64 or float32.
    """
    candidates = len(request["items"]["item_id"])
    arrays = {name: _array(name, value) for name, value in {**request["user"], **request["items"]}.items()}
    for name in request["user"]:
        arrays[name] = np.repeat(arrays[name][None], candidates, axis=0)
    return arrays


def write(requests: Iterable[Request], path: Path) -> None:
    """Write JSON lines, UTF-8."""
    lines = [json.dumps(request, ensure_ascii=False) for request in requests]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _request(log: Log, row: int, items: np.ndarray[Any, Any]) -> Request:
    catalog: Catalog = log.catalogs[log.campaign[row]]
    user: dict[str, Any] = {name: log.features[name][row] for name in COHORT}
    user["hour"] = int(log.features["hour"][row])
    user["recent_items"] = [name for name in log.features["recent_items"][row] if name]
    columns = {name: catalog.features[name][items].tolist() for name in ITEM_FEATURES if name != "affinity"}
    columns["affinity"] = log.affinities[row, items].tolist()
    return {"user": {name: user[name] for name in USER_FEATURES}, "items": columns}


def _make_unseen(request: Request, number: int) -> None:
    request["user"]["user_feature_1"] = f"unseen-{number}"
    request["user"]["user_feature_2"] = f"nie gesehen – 初見-{number}"
    request["user"]["recent_items"] = ["retired-item", *request["user"]["recent_items"]][:20]
    request["items"]["item_id"][0] = f"new-item-{number}"
    request["items"]["item_feature_1"][0] = f"unseen-{number}"
    request["items"]["item_feature_2"][0] = ""


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    if name == "hour":
        return np.asarray(value, np.int64)
    if name in ("affinity", "item_feature_0"):
        return np.asarray(value, np.float32)
    return np.asarray(value, object)
