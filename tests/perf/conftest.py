"""The tools under perf/ are scripts, not a package: they import each other from there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "perf"))

SPEC = """\
model: tiny
saved_model: saved_model
user: [country, seen]
defaults: {seen: [], price: 1.5}
buckets: [4, 16]
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """`tiny(seed)`: spec of a small model with a word, a history, a vocabulary, a hash and a number."""
    known: dict[int, Path] = {}

    def get(seed: int) -> Path:
        if seed not in known:
            folder = tmp_path_factory.mktemp(f"tiny{seed}")
            _export(folder / "saved_model", seed)
            (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
            known[seed] = folder / "spec.yaml"
        return known[seed]

    return get


@pytest.fixture(scope="session")
def repository(tiny: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ensemble of `tiny(1)`; copy it to change it."""
    from bireme.build import build

    folder = tmp_path_factory.mktemp("repository")
    build(tiny(1), folder)
    return folder


def _export(folder: Path, seed: int) -> None:
    import keras
    from keras import layers, ops

    keras.utils.set_random_seed(seed)
    words = ["red", "green", "blue"]
    inputs = {
        "country": keras.Input((), dtype="string", name="country"),
        "seen": keras.Input((None,), dtype="string", name="seen"),
        "color": keras.Input((), dtype="string", name="color"),
        "brand": keras.Input((), dtype="string", name="brand"),
        "price": keras.Input((), dtype="float32", name="price"),
    }
    lookup = layers.StringLookup(vocabulary=words, mask_token="")
    table = layers.Embedding(len(words) + 2, 4)
    seen = lookup(inputs["seen"])
    mask = ops.cast(ops.not_equal(seen, 0), "float32")[..., None]
    mean = ops.sum(table(seen) * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)
    blocks = [
        layers.Embedding(8, 4)(layers.Hashing(8)(inputs["country"])),
        mean,
        table(lookup(inputs["color"])),
        layers.Embedding(16, 4)(layers.Hashing(16)(inputs["brand"])),
        ops.log1p(inputs["price"])[:, None],
    ]
    x = layers.Dense(8, activation="relu")(layers.Concatenate()(blocks))
    score = layers.Dense(1, activation="sigmoid")(x)
    keras.Model(inputs, {"click": score[:, 0]}).export(str(folder), verbose=False)
