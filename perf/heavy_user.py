"""A pre-ranking model with a heavy user side: attributes, long histories and a deep tower for the user alone.

    python perf/heavy_user.py --out FOLDER

writes FOLDER/saved_model, FOLDER/requests.jsonl and FOLDER/bireme.yaml. 800 columns of the user (16 hashed
attributes of 32, three histories of 100 pooled into 96 each), a tower of 1024-512-128 over them, 200 columns
of a candidate (6 hashed attributes of 32, 8 numbers), and a small network over both. Weights are random: it
is about time.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["HISTORY", "main", "make_request", "write_model"]

ATTRIBUTES, HISTORIES, HISTORY = 16, 3, 100
ITEM_ATTRIBUTES, NUMBERS = 6, 8
_SPEC = """\
model: heavy
saved_model: saved_model
user: [{user}]
defaults: {{{defaults}}}
buckets: [64, 128, 256, 512]
samples: requests.jsonl
"""


def make_request(rng: np.random.Generator, candidates: int) -> dict[str, dict[str, Any]]:
    """One user with full histories, and candidates; ids are decimal text."""

    def ids(count: int) -> list[str]:
        return [str(number) for number in rng.integers(0, 1_000_000, count)]

    user: dict[str, Any] = {f"attribute_{i}": ids(1)[0] for i in range(ATTRIBUTES)}
    user |= {f"history_{i}": ids(HISTORY) for i in range(HISTORIES)}
    items: dict[str, Any] = {f"item_{i}": ids(candidates) for i in range(ITEM_ATTRIBUTES)}
    items |= {f"number_{i}": rng.uniform(size=candidates).round(4).tolist() for i in range(NUMBERS)}
    return {"user": user, "items": items}


def write_model(folder: Path, layers_of_both: Sequence[int] = (128, 64)) -> Path:
    """Export the model with a spec and sample requests; returns the spec's path.

    Args:
        folder: made if it is missing.
        layers_of_both: widths of the network that runs for every candidate.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras
    from keras import layers, ops

    keras.utils.set_random_seed(3)
    inputs: dict[str, Any] = {}

    def embed(name: str, shape: tuple[int | None, ...], rows: int, width: int) -> Any:
        inputs[name] = keras.Input(shape, dtype="string", name=name)
        return layers.Embedding(rows, width)(layers.Hashing(rows)(inputs[name]))

    def pooled(name: str) -> Any:
        rows = embed(name, (None,), 20_000, 96)
        mask = ops.cast(ops.not_equal(inputs[name], ""), "float32")[..., None]
        return ops.sum(rows * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)

    user = [embed(f"attribute_{i}", (), 10_000, 32) for i in range(ATTRIBUTES)]
    user += [pooled(f"history_{i}") for i in range(HISTORIES)]
    tower = layers.Concatenate()(user)
    for width in (1024, 512, 128):
        tower = layers.Dense(width, activation="relu")(tower)
    items = [embed(f"item_{i}", (), 10_000, 32) for i in range(ITEM_ATTRIBUTES)]
    for i in range(NUMBERS):
        inputs[f"number_{i}"] = keras.Input((), dtype="float32", name=f"number_{i}")
        items.append(inputs[f"number_{i}"][:, None])
    both = layers.Concatenate()([tower, *items])
    for width in layers_of_both:
        both = layers.Dense(width, activation="relu")(both)
    score = layers.Dense(1, activation="sigmoid")(both)[:, 0]
    folder.mkdir(parents=True, exist_ok=True)
    keras.Model(inputs, {"click": score}).export(str(folder / "saved_model"), verbose=False)

    rng = np.random.default_rng(0)
    lines = [json.dumps(make_request(rng, 40)) for _ in range(12)]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    names = [name for name in inputs if name.startswith(("attribute", "history"))]
    defaults = ", ".join(f"{name}: []" for name in names if name.startswith("history"))
    spec = folder / "bireme.yaml"
    spec.write_text(_SPEC.format(user=", ".join(names), defaults=defaults), encoding="utf-8")
    return spec


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[128, 64], help="widths of the network for every candidate"
    )
    given = parser.parse_args(arguments)
    print(write_model(given.out, given.layers))


if __name__ == "__main__":
    main()
