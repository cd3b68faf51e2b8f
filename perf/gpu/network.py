"""A launch-bound ranking network in Keras: many small layers, so that a GPU waits for launches.

    python perf/gpu/network.py --out FOLDER

writes FOLDER/saved_model, sample requests, and two specs. The model of FOLDER/flat.yaml is told nothing of
a user's side, so that every candidate brings the user's columns along. A user is 8 slots of 64 columns (6
items he has seen, city and segment), a candidate 4 ids of 64 columns. The network attends over the slots
(DIN), crosses user, candidate and interest (FM), crosses features in two low-rank layers (DCN-v2), mixes
three experts (MMoE) and ends in a tower for each of two tasks; the third task is their product. Widths are
those of the network behind the project's first GPU measurements. Weights are random: it is about time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import bireme.compiler.graph  # noqa: F401  # sets TensorFlow's switches before Keras imports it

# isort: split
import keras
import numpy as np
from keras import layers, ops

__all__ = [
    "BUCKETS",
    "FLAT",
    "MAX_USERS",
    "NAME",
    "TASKS",
    "USER",
    "build_model",
    "main",
    "make_request",
    "repeat_user",
    "to_lines",
    "write_model",
]

NAME, FLAT = "din_mmoe", "din_mmoe_flat"
TASKS = ("ctr", "cvr", "ctcvr")
USER = ("history", "city", "segment")
#: Feature → rows of its table; `history` shares that of `item`.
ROWS = {"item": 50_000, "category": 1_000, "brand": 10_000, "shop": 10_000, "city": 1_000, "segment": 1_000}
ITEM = ("item", "category", "brand", "shop")
SEEN, WIDTH, CROSS, RANK, EXPERTS, EXPERT = 6, 64, 64, 64, 3, 256
TOWER = ((1024, 512), (256, 128))
BUCKETS = (64, 128, 256, 512, 1024)
MAX_USERS = 8
_SPEC = """\
model: {name}
saved_model: saved_model
user: [{user}]
buckets: {buckets}
max_users: {users}
cores: {cores}
storage: float16
samples: {samples}
"""


def make_request(rng: np.random.Generator, candidates: int) -> dict[str, dict[str, Any]]:
    """One user with candidates."""

    def ids(name: str, count: int) -> list[int]:
        return [int(number) for number in rng.integers(0, ROWS[name], count)]

    user: dict[str, Any] = {"history": ids("item", SEEN)}
    user |= {name: ids(name, 1)[0] for name in ("city", "segment")}
    return {"user": user, "items": {name: ids(name, candidates) for name in ITEM}}


def repeat_user(request: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same request for a model that knows no user's side: his features, once for each candidate."""
    count = len(request["items"][ITEM[0]])
    repeated = {name: [value] * count for name, value in request["user"].items()}
    return {"user": {}, "items": {**repeated, **request["items"]}}


def write_model(folder: Path, cores: int, rows: int | None = None) -> tuple[Path, Path]:
    """Export the model with two specs and sample requests; returns the specs' paths.

    Args:
        folder: made if it is missing.
        cores: of the machine that will serve.
        rows: at most so many in each table; ids beyond wrap around.
    """
    model = build_model(rows)
    folder.mkdir(parents=True, exist_ok=True)
    model.export(str(folder / "saved_model"), verbose=False)
    rng = np.random.default_rng(0)
    requests = [make_request(rng, count) for count in (20, 64, 30, 100, 7, 50, 33, 80)]
    named = {NAME: (USER, requests), FLAT: ((), [repeat_user(request) for request in requests])}
    specs = []
    for (name, (user, samples)), stem in zip(named.items(), ("bireme", "flat"), strict=True):
        (folder / f"{stem}.jsonl").write_text(to_lines(samples), encoding="utf-8")
        text = _SPEC.format(
            name=name,
            user=", ".join(user),
            buckets=list(BUCKETS),
            users=MAX_USERS,
            cores=cores,
            samples=f"{stem}.jsonl",
        )
        specs.append(folder / f"{stem}.yaml")
        specs[-1].write_text(text, encoding="utf-8")
    return specs[0], specs[1]


def to_lines(requests: Sequence[Mapping[str, Any]]) -> str:
    """Requests as JSON lines."""
    return "".join(json.dumps(request) + "\n" for request in requests)


def build_model(rows: int | None = None) -> Any:
    """The Keras model with random weights."""
    sizes = {name: min(count, rows or count) for name, count in ROWS.items()}
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in ("city", "segment", *ITEM)}
    inputs["history"] = keras.Input((SEEN,), dtype="int64", name="history")
    tables = {name: layers.Embedding(count, WIDTH, name=f"{name}_table") for name, count in sizes.items()}

    def looked_up(name: str, table: str) -> Any:
        return tables[table](ops.mod(inputs[name], sizes[table]))

    single = [ops.expand_dims(looked_up(name, name), 1) for name in ("city", "segment")]
    slots = layers.Concatenate(axis=1)([looked_up("history", "item"), *single])  # [n, 8, 64]
    item = layers.Concatenate()([looked_up(name, name) for name in ITEM])  # [n, 256]
    scores = _network(slots, item)
    model = keras.Model(inputs, scores)
    _fill(model)
    return model


def _network(slots: Any, item: Any) -> dict[str, Any]:
    count = SEEN + 2
    flat = layers.Reshape((count * WIDTH,))(slots)
    target = layers.Dense(CROSS, name="target")(item)
    interest = _attend(slots, target, count)
    user = layers.Dense(CROSS, name="user")(flat)
    together = user + target + interest
    alone = ops.square(user) + ops.square(target) + ops.square(interest)
    pairs = 0.5 * (ops.square(together) - alone)
    first = layers.Concatenate()([flat, item, user, target, interest, pairs])  # [n, 1024]
    first = layers.LayerNormalization(epsilon=1e-5)(first)
    x = first
    for _ in range(2):
        narrow = layers.Dense(RANK, use_bias=False)(x)
        x = first * layers.Dense(first.shape[-1])(narrow) + x
    experts = ops.stack([layers.Dense(EXPERT, activation="relu")(x) for _ in range(EXPERTS)], axis=1)
    click = _tower(experts, x, ops.relu(x), "ctr")
    buy = _tower(experts, x, x, "cvr")
    logits = dict(zip(TASKS, (click, buy, click * buy), strict=True))
    return {task: layers.Identity(name=task)(score) for task, score in logits.items()}


def _attend(slots: Any, target: Any, count: int) -> Any:
    """The slots' sum, weighed by how they fit the target: [n, 64]."""
    query = layers.RepeatVector(count)(target)
    compared = layers.Concatenate()([slots, query, slots - query, slots * query])
    for width in (64, 32):
        compared = layers.Dense(width, activation="sigmoid")(compared)
    weights = ops.softmax(layers.Dense(1)(compared), axis=1)
    return ops.sum(weights * slots, axis=1)


def _tower(experts: Any, x: Any, beside: Any, task: str) -> Any:
    gate = layers.Dense(EXPERTS, activation="softmax", name=f"{task}_gate")(x)
    mixed = ops.sum(experts * ops.expand_dims(gate, -1), axis=1)
    h = layers.Concatenate()([mixed, beside])
    for width in TOWER[0]:
        h = layers.Dense(width, activation="relu")(h)
    h = layers.LayerNormalization(epsilon=1e-5)(h)
    for width in TOWER[1]:
        h = layers.Dense(width, activation="relu")(h)
    return layers.Dense(1, activation="sigmoid", name=f"{task}_score")(h)


def _fill(model: Any, seed: int = 7) -> None:
    """Random weights that keep activations, and so scores, in an ordinary range."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        shape = tuple(variable.shape)
        if "table" in variable.path:
            value = rng.standard_normal(shape)
        elif len(shape) > 1:
            value = rng.standard_normal(shape) / np.sqrt(shape[0])
        elif variable.path.endswith("gamma"):
            value = np.ones(shape)
        else:
            value = 0.02 * rng.standard_normal(shape)
        variable.assign(value.astype(np.float32))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--cores", type=int, default=16, help="of the machine that will serve")
    options = parser.parse_args(arguments)
    print(*write_model(options.out, options.cores))


if __name__ == "__main__":
    main()
