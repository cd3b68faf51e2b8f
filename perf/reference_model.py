"""DeepFM of a usual size, with integer ids and random weights: it is about time.

    python perf/reference_model.py --out FOLDER

writes FOLDER/saved_model, FOLDER/requests.jsonl and FOLDER/bireme.yaml. A user is 10 sets of about 50 ids
(mean), 20 single ids and 3 numbers, a candidate 20 single ids and 8 numbers; every id has 16 columns of a
table with 50,000 rows. Scores are those of a factorization machine over the 50 fields plus those of a network
of 256-128-64.

Two signatures of the same weights: `serving_default` takes rows, as models for ranking are exported, so that
a server repeats the user for every candidate. `one_user` takes the user once and repeats his columns inside,
behind tables and pools: the best that the same graph can do in TensorFlow.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baseline.repository import ONE_USER

__all__ = ["ROWS", "main", "make_request", "write_model"]

SETS, USER_IDS, USER_NUMBERS, ITEM_IDS, ITEM_NUMBERS = 10, 20, 3, 20, 8
WIDTH, ROWS, MLP = 16, 50_000, (256, 128, 64)
_SPEC = """\
model: reference
saved_model: saved_model
user: [{user}]
buckets: [64, 128, 256, 512]
samples: requests.jsonl
"""


def _names(stem: str, count: int) -> list[str]:
    return [f"{stem}_{i}" for i in range(count)]


def make_request(rng: np.random.Generator, candidates: int) -> dict[str, dict[str, Any]]:
    """One user with 40 to 60 ids a set, and candidates."""

    def ids(count: int) -> list[int]:
        return [int(number) for number in rng.integers(0, 1 << 40, count)]

    user: dict[str, Any] = {name: ids(int(rng.integers(40, 61))) for name in _names("set", SETS)}
    user |= {name: ids(1)[0] for name in _names("user", USER_IDS)}
    user |= {name: round(float(rng.uniform()), 4) for name in _names("about", USER_NUMBERS)}
    items: dict[str, Any] = {name: ids(candidates) for name in _names("item", ITEM_IDS)}
    items |= {name: rng.uniform(size=candidates).round(4).tolist() for name in _names("number", ITEM_NUMBERS)}
    return {"user": user, "items": items}


def write_model(folder: Path, rows: int = ROWS) -> Path:
    """Export the model with a spec and sample requests; returns the spec's path.

    Args:
        folder: made if it is missing.
        rows: of each table.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    model, calls = _network(rows)
    kinds = dict.fromkeys([*_names("user", USER_IDS), *_names("item", ITEM_IDS)], tf.int64)
    kinds |= dict.fromkeys([*_names("about", USER_NUMBERS), *_names("number", ITEM_NUMBERS)], tf.float32)
    specs = {name: tf.TensorSpec([None], kind, name) for name, kind in kinds.items()}
    specs |= {name: tf.TensorSpec([None, None], tf.int64, name) for name in _names("set", SETS)}
    signatures = {key: call.get_concrete_function(**specs) for key, call in calls.items()}
    folder.mkdir(parents=True, exist_ok=True)
    tf.saved_model.save(model, str(folder / "saved_model"), signatures=signatures)
    rng = np.random.default_rng(0)
    lines = [json.dumps(make_request(rng, 20)) for _ in range(8)]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    user = [*_names("set", SETS), *_names("user", USER_IDS), *_names("about", USER_NUMBERS)]
    spec = folder / "bireme.yaml"
    spec.write_text(_SPEC.format(user=", ".join(user)), encoding="utf-8")
    return spec


def _network(rows: int) -> tuple[Any, dict[str, Any]]:
    """A tf.Module with its variables, and signature → function."""
    import tensorflow as tf

    rng = np.random.default_rng(7)

    def variable(*shape: int, scale: float) -> Any:
        return tf.Variable(rng.normal(0, scale, shape).astype(np.float32))

    model: Any = tf.Module()
    sets, singles = _names("set", SETS), _names("user", USER_IDS)
    about, items = _names("about", USER_NUMBERS), _names("item", ITEM_IDS)
    numbers = _names("number", ITEM_NUMBERS)
    model.tables = {name: variable(rows, WIDTH, scale=0.1) for name in (*sets, *singles, *items)}
    widths = [WIDTH * (SETS + USER_IDS + ITEM_IDS) + USER_NUMBERS + ITEM_NUMBERS, *MLP, 1]
    model.weights = [variable(a, b, scale=(2 / a) ** 0.5) for a, b in itertools.pairwise(widths)]
    model.biases = [variable(b, scale=0.1) for b in widths[1:]]

    def looked_up(name: str, ids: Any) -> Any:
        return tf.gather(model.tables[name], tf.math.floormod(ids, rows))

    def columns(given: Mapping[str, Any], ids: Sequence[str], plain: Sequence[str]) -> Any:
        blocks = [looked_up(name, given[name]) for name in ids]
        return tf.concat([*blocks, *(given[name][:, None] for name in plain)], axis=1)

    def user_columns(given: Mapping[str, Any]) -> Any:
        pooled = [tf.reduce_mean(looked_up(name, given[name]), axis=1) for name in sets]
        return tf.concat([*pooled, columns(given, singles, about)], axis=1)

    def score(user: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        item = columns(given, items, numbers)
        both = (user[:, : WIDTH * (SETS + USER_IDS)], item[:, : WIDTH * ITEM_IDS])
        fields = tf.concat([tf.reshape(part, [-1, part.shape[1] // WIDTH, WIDTH]) for part in both], axis=1)
        pairs = tf.reduce_sum(fields, axis=1) ** 2 - tf.reduce_sum(fields**2, axis=1)
        hidden = tf.concat([user, item], axis=1)
        for weight, bias in zip(model.weights[:-1], model.biases[:-1], strict=True):
            hidden = tf.nn.relu(hidden @ weight + bias)
        logit = (hidden @ model.weights[-1] + model.biases[-1])[:, 0] + 0.5 * tf.reduce_sum(pairs, axis=1)
        return {"click": tf.sigmoid(logit)}

    def by_rows(**given: Any) -> dict[str, Any]:
        return score(user_columns(given), given)

    def one_user(**given: Any) -> dict[str, Any]:
        return score(tf.repeat(user_columns(given), tf.shape(given[items[0]])[0], axis=0), given)

    calls = {"serving_default": by_rows, ONE_USER: one_user}
    return model, {key: tf.function(call, autograph=False) for key, call in calls.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    print(write_model(parser.parse_args(arguments).out))


if __name__ == "__main__":
    main()
