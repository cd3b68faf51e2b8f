"""A large made-up ranking model: hundreds of features of all kinds, gigabytes of embedding tables.

    python perf/build_model.py --out FOLDER --features 300 --gigabytes 2

Keras 3, as a user writes it: lookups, hashing, bucketing, normalisation and pooling inside the model, one
table a categorical feature. A fifth of the hashed features share most of the bytes, as in real catalogs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import yaml
from keras import layers, ops

__all__ = ["make_model"]

#: Kinds of features and how many of 15 are of each.
_MIX = {"vocabulary": 4, "hash": 3, "bucket": 2, "number": 3, "integer": 1, "row": 1, "history": 1}
_WIDTHS = (8, 16, 16, 32)
_SMALL_HASH = 5_000
_HIDDEN = (512, 256)


def make_model(folder: Path, features: int, table_bytes: int, single: bool = False, seed: int = 0) -> int:
    """Export the model into `folder`/saved_model, with a build spec beside it.

    Args:
        folder: an existing folder.
        features: how many inputs.
        table_bytes: bytes of all embedding tables together, nearly.
        single: one hashed feature has all the bytes that the small tables leave.
        seed: of sizes and weights.

    Returns:
        Bytes of the embedding tables.
    """
    rng = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    kinds = _kinds(features)
    hashed = [name for name, kind in kinds.items() if kind in ("hash", "history")]
    large = hashed[:1] if single else hashed[: max(1, len(hashed) // 5)]
    width_of = {name: _WIDTHS[i % len(_WIDTHS)] for i, name in enumerate(kinds)}
    plain = {name: _rows(kind, rng) for name, kind in kinds.items()}
    rest = sum(4 * rows * width_of[name] for name, rows in plain.items() if name not in large)
    for name in large:
        plain[name] = max(_SMALL_HASH, (table_bytes - rest) // len(large) // (4 * width_of[name]))
    inputs: dict[str, Any] = {}
    columns = [_column(name, kind, plain[name], width_of[name], inputs, rng) for name, kind in kinds.items()]
    x = layers.Concatenate()(columns)
    for width in _HIDDEN:
        x = layers.ReLU()(layers.BatchNormalization()(layers.Dense(width)(x)))
    model = keras.Model(inputs, {"click": layers.Dense(1, activation="sigmoid")(x)[:, 0]})
    size = sum(4 * int(np.prod(v.shape)) for v in model.weights if "embedding" in v.path)
    model.export(str(folder / "saved_model"), verbose=False)
    user = [name for i, (name, kind) in enumerate(kinds.items()) if kind == "history" or i % 2]
    spec = {"model": "large", "saved_model": "saved_model", "user": user, "buckets": [64, 256]}
    (folder / "bireme.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return size


def _kinds(count: int) -> dict[str, str]:
    def turns() -> Iterator[str]:
        while True:
            for turn in range(max(_MIX.values())):
                yield from (kind for kind, share in _MIX.items() if share > turn)

    return {f"{kind}_{i}": kind for i, kind in zip(range(count), turns(), strict=False)}


def _rows(kind: str, rng: np.random.Generator) -> int:
    """Rows of a feature's table; 0 if it has none."""
    if kind in ("vocabulary", "integer"):
        return int(10 ** rng.uniform(1, 4.3))  # up to 20,000 words
    return {"number": 0, "bucket": 33, "row": 200}.get(kind, _SMALL_HASH)


def _column(
    name: str, kind: str, rows: int, width: int, inputs: dict[str, Any], rng: np.random.Generator
) -> Any:
    """What the dense layers get of one feature: [batch, width]."""
    dtype = {"number": "float32", "bucket": "float32", "integer": "int64", "row": "int32"}.get(kind, "string")
    source = keras.Input((None,) if kind == "history" else (), dtype=dtype, name=name)
    inputs[name] = source
    if kind == "number":
        scaled = layers.Normalization(axis=None, mean=1.0, variance=float(rng.uniform(0.5, 9)))(source)
        return (ops.log1p(source) if rng.random() < 0.5 else scaled)[:, None]
    table = layers.Embedding(rows + 2, width, name=f"{name}_embedding")
    if kind == "vocabulary":
        return table(layers.StringLookup(vocabulary=[f"{name}_{i}" for i in range(rows)])(source))
    if kind == "integer":
        return table(layers.IntegerLookup(vocabulary=list(range(7, 7 + 3 * rows, 3)))(source))
    if kind == "bucket":
        return table(layers.Discretization(sorted(rng.gamma(1, 2, 31).tolist()))(source))
    if kind == "row":
        return table(source)
    if kind == "hash":
        return table(layers.Hashing(rows)(source))
    ids = layers.Hashing(rows)(source)
    mask = ops.cast(ops.not_equal(source, ""), "float32")[..., None]
    return ops.sum(table(ids) * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of 2^30 bytes")
    parser.add_argument("--single", action="store_true", help="nearly all of them in one table")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(make_model(given.out, given.features, int(given.gigabytes * 2**30), given.single))


if __name__ == "__main__":
    main()
