"""Synthetic clicks that can be learnt: users and items have tastes, prices deter, popularity draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["USER", "Clicks", "make_clicks", "to_request"]

Array = np.ndarray[Any, Any]

USERS, ITEMS, SHOPS, TASTES, HISTORY = 2_000, 3_000, 60, 6, 8
#: Inputs on the user side.
USER = ("user", "age", "history")
#: A raw count of views, up to a million, as logs hold it.
MOST_VIEWS = 1e6


@dataclass(frozen=True)
class Clicks:
    """Requests of one user and `n` candidates each.

    Args:
        user: feature → [requests] or [requests, history].
        items: feature → [requests, n].
        labels: task → bool [requests, n].
    """

    user: dict[str, Array]
    items: dict[str, Array]
    labels: dict[str, Array]

    @property
    def rows(self) -> int:
        """User–candidate pairs."""
        return int(self.items["item"].size)

    def flat(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Rows for training: features and labels, the user repeated."""
        count = self.items["item"].shape[1]
        rows = {name: np.repeat(value, count, axis=0) for name, value in self.user.items()}
        rows |= {name: value.reshape(-1) for name, value in self.items.items()}
        return rows, {task: value.reshape(-1).astype(np.float32) for task, value in self.labels.items()}


def make_clicks(requests: int, candidates: int, seed: int) -> Clicks:
    """Draw requests; the world is always the same, the seed decides who asks for what."""
    world = np.random.default_rng(0)
    users, items = world.normal(size=(USERS, TASTES)), world.normal(size=(ITEMS, TASTES))
    appeal, shops = world.normal(size=ITEMS), world.integers(0, SHOPS, ITEMS)
    prices = world.lognormal(0.0, 0.7, ITEMS).astype(np.float32)
    views = (MOST_VIEWS * world.random(ITEMS) ** 2).astype(np.float32)
    ages = world.integers(18, 80, USERS).astype(np.float32)

    rng = np.random.default_rng(seed)
    user = rng.integers(0, USERS, requests)
    # What a user clicked before says something about the user's taste: the best of some drawn items.
    drawn = rng.integers(0, ITEMS, (requests, HISTORY, 6))
    liked = np.einsum("rt,rhkt->rhk", users[user], items[drawn])
    history = np.take_along_axis(drawn, liked.argmax(-1)[..., None], -1)[..., 0]
    item = np.stack([rng.choice(ITEMS, candidates, replace=False) for _ in range(requests)])
    logit = 0.7 * np.einsum("rt,rnt->rn", users[user], items[item]) / np.sqrt(TASTES) * 2
    logit += 0.6 * appeal[item] - 0.8 * np.log(prices[item]) + 1.5 * views[item] / MOST_VIEWS
    logit += 0.3 * (ages[user, None] - 50) / 15 * (appeal[item] > 0)
    click = rng.random(item.shape) < 1 / (1 + np.exp(-(logit - 2.4)))
    buy = click & (rng.random(item.shape) < 1 / (1 + np.exp(-(0.8 * logit - 1.5 * np.log(prices[item])))))
    return Clicks(
        {"user": user, "age": ages[user], "history": history},
        {"item": item, "shop": shops[item], "price": prices[item], "views": views[item]},
        {"click": click, "buy": buy},
    )


def to_request(clicks: Clicks, index: int, features: set[str], tasks: set[str]) -> dict[str, Any]:
    """One request as a line of the spec's `samples`, labels included."""
    return {
        "user": {name: value[index].tolist() for name, value in clicks.user.items() if name in features},
        "items": {name: value[index].tolist() for name, value in clicks.items.items() if name in features},
        "labels": {t: v[index].astype(int).tolist() for t, v in clicks.labels.items() if t in tasks},
    }
