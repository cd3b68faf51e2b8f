"""A plan with every kind of step, requests for it, and the same plan done slowly: one value at a time."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bireme_runtime.plan import (
    Admitted,
    Bucketize,
    Embed,
    Feature,
    HashBucket,
    IdentityId,
    IntVocabulary,
    Mask,
    Numeric,
    Plan,
    Table,
    Vocabulary,
)
from bireme_runtime.preprocessor import Preprocessor
from bireme_runtime.vocabulary import IntVocabulary as IntVocabularyFile
from bireme_runtime.vocabulary import Vocabulary as VocabularyFile

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]

WORDS = {b"shoe": 2, b"hat": 3, "куртка".encode(): 4, b"": 5, b"w" * 70: 6}  # 0: masked, 1: unknown
KEYS = {-3: 1, 0: 2, 7: 3, 2**31 - 1: 4}
EDGES = (-1.0, 0.0, 1.5, 10.0)
TEXTS = (*WORDS, b"glove", b"shoe\0", "未知".encode(), b"x" * 300)

FEATURES = (
    Feature("uid", "user", "string"),
    Feature("country", "user", "string", default="hat"),
    Feature("hour", "user", "int64"),
    Feature("age", "user", "float64"),
    Feature("seen", "user", "string", -1, default=[]),
    Feature("recent", "user", "int64", 3, default=[0, 5, 9]),
    Feature("iid", "item", "string"),
    Feature("cat", "item", "int32", default=7),
    Feature("price", "item", "float32", default=1.5),
    Feature("tags", "item", "string", -1, default=["a", "", "shoe"]),
    Feature("raw", "item", "string", text="bytes"),
    Feature("sold", "item", "bool"),
)
STEPS = (
    HashBucket("uid.hash", "uid", 50),
    Vocabulary("country.word", "country", "words.bin", 1),
    IdentityId("hour.row", "hour"),
    Bucketize("age.bucket", "age", EDGES),
    Vocabulary("seen.word", "seen", "words.bin", 0),
    IdentityId("recent.row", "recent"),
    Vocabulary("iid.word", "iid", "words.bin", 1),
    IntVocabulary("cat.key", "cat", "keys.bin", 0),
    Bucketize("price.bucket", "price", EDGES),
    HashBucket("tags.hash", "tags", 50),
    HashBucket("raw.hash", "raw", 50),
    Embed("uid", "uid.hash", "hashed", "user", 0, 4),
    Embed("country", "country.word", "words", "user", 4, 4),
    Embed("hour", "hour.row", "hours", "user", 8, 2),
    Embed("age", "age.bucket", "buckets", "user", 10, 2),
    Embed("seen", "seen.word", "words", "user", 12, 4, "mean", Mask("seen.word", 0), 0.5),
    Embed("recent", "recent.row", "half", "user", 16, 3, "sum"),
    Numeric("age.number", "age", (("sub", 30.0), ("div", 7.0)), "user", 19),
    Embed("recent.rows", "recent.row", "half", "user", 20, 9),
    Admitted("recent.mask", Mask("recent.row", 5), "user", 29, 3),
    Admitted("recent.above", Mask("recent.row", 5, "gt"), "user", 32, 3),
    Embed("iid", "iid.word", "words", "item", 0, 4),
    Embed("cat", "cat.key", "buckets", "item", 4, 2),
    Embed("price", "price.bucket", "buckets", "item", 6, 2),
    Embed("tags", "tags.hash", "hashed", "item", 8, 4, "mean", Mask("tags", "")),
    Embed("tags.sum", "tags.hash", "hashed", "item", 12, 4, "sum", Mask("tags", "")),
    Embed("raw", "raw.hash", "hashed", "item", 16, 4),
    Numeric("price.number", "price", (("log1p", None), ("mul", 0.5)), "item", 20),
    Numeric("sold", "sold", (), "item", 21),
)
TABLES = (
    Table("hashed", "arena_w4.bin", "float32", 4, 0, 50),
    Table("words", "arena_w4.bin", "float32", 4, 50, 7),
    Table("hours", "arena_w2.bin", "float32", 2, 0, 24),
    Table("buckets", "arena_w2.bin", "float32", 2, 24, 5),
    Table("half", "arena_half.bin", "float16", 3, 0, 10),
)
FILES = ("words.bin", "keys.bin", *sorted({table.arena for table in TABLES}))
PLAN = Plan("shop", FEATURES, TABLES, STEPS, 35, 22, "float32", (2, 4, 9), pad=False)
OPTIONAL = tuple(feature.name for feature in FEATURES if feature.default is not None)


def write_file(name: str, path: Path) -> None:
    """One of `FILES`; the same bytes at every call."""
    if name == "words.bin":
        VocabularyFile.build(list(WORDS), np.array(list(WORDS.values()))).save(path)
    elif name == "keys.bin":
        IntVocabularyFile.build(list(KEYS), np.array(list(KEYS.values()))).save(path)
    else:
        mine = [table for table in TABLES if table.arena == name]
        rows = sum(table.rows for table in mine)
        values = np.random.default_rng(rows).normal(0, 1, (rows, mine[0].width))
        path.write_bytes(values.astype(mine[0].dtype).tobytes())


def write_plan(folder: Path, plan: Plan = PLAN) -> Path:
    """Everything that `Preprocessor.open` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    for name in FILES:
        write_file(name, folder / name)
    return folder


def objects(values: Any, shape: tuple[int, ...]) -> Array:
    """An object array, as Triton hands strings over."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)


def make_request(seed: int, users: int, candidates: int, seen: int, tags: int, left_out: Any = ()) -> Tensors:
    """A valid request: `seen` and `tags` are the lengths of its sequences."""
    rng = np.random.default_rng(seed)

    def text(*shape: int) -> Array:
        return objects([TEXTS[i] for i in rng.integers(0, len(TEXTS), int(np.prod(shape)))], shape)

    pairs = (users, candidates)
    numbers = np.where(rng.random(pairs) < 0.5, rng.choice([0.0, 1.5, 10.0], pairs), rng.gamma(1, 4, pairs))
    tensors = {
        "uid": text(users, 1),
        "country": text(users, 1),
        "hour": rng.integers(0, 24, (users, 1)),
        "age": rng.normal(30, 20, (users, 1)),
        "seen": text(users, seen),
        "recent": rng.integers(0, 10, (users, 3)),
        "iid": text(*pairs),
        "cat": rng.choice([*KEYS, 1, -(2**31)], pairs).astype(np.int32),
        "price": numbers.astype(np.float32),
        "tags": text(*pairs, tags),
        "raw": objects([b"\xff\xfe" * int(k) for k in rng.integers(0, 3, users * candidates)], pairs),
        "sold": rng.random(pairs) < 0.5,
    }
    return {name: array for name, array in tensors.items() if name not in left_out}


def slowly(preprocessor: Preprocessor, request: Mapping[str, Array]) -> tuple[Array, Array]:
    """`user` and `items` of one request by loops over users, candidates, steps and elements."""
    plan, tables = preprocessor.plan, preprocessor._tables
    users, candidates = request["iid"].shape
    user = np.zeros((users, plan.user_width), np.float32)
    items = np.zeros((users, candidates, plan.item_width), np.float32)
    features = {feature.name: feature for feature in plan.features}

    def value(name: str, u: int, n: int) -> Any:
        """One value, or the list of a sequence; text as bytes."""
        feature = features[name]
        if name not in request:
            default = feature.default
            encode = [v.encode() if isinstance(v, str) else v for v in np.atleast_1d(default).tolist()]
            return encode if feature.length is not None else encode[0]
        cell = request[name][u] if feature.side == "user" else request[name][u, n]
        if feature.length is not None:
            return cell.tolist()
        return cell[0] if feature.side == "user" else cell

    ids_of = {step.name: step for step in plan.steps if not isinstance(step, (Admitted, Embed, Numeric))}
    for u in range(users):
        for n in range(candidates):
            for step in plan.steps:
                if isinstance(step, Embed):
                    source = ids_of[step.ids]
                    given = value(source.feature, u, n)
                    result = _embed(step, source, given, tables[step.table])
                elif isinstance(step, Numeric):
                    result = _number(step, value(step.feature, u, n))
                elif isinstance(step, Admitted):
                    source = ids_of[step.mask.of]
                    ids = [one_id(source, element) for element in value(source.feature, u, n)]
                    above, value_of = step.mask.test == "gt", step.mask.value
                    result = [float(i > value_of if above else i != value_of) for i in ids]
                else:
                    continue
                row = user[u] if step.side == "user" else items[u, n]
                row[step.offset : step.offset + step.width] = result
    return user, items


@functools.cache
def hashed(text: bytes, buckets: int) -> int:
    """TensorFlow's own hash."""
    return int(tf.strings.to_hash_bucket_fast(text, buckets))


def one_id(step: Any, value: Any) -> int:
    """The id of one value."""
    if isinstance(step, HashBucket):
        return hashed(value, step.buckets)
    if isinstance(step, Vocabulary):
        return WORDS.get(value, step.default)
    if isinstance(step, IntVocabulary):
        return KEYS.get(int(value), step.default)
    if isinstance(step, Bucketize):
        return sum(edge <= value for edge in step.edges)
    return int(value)


def _embed(step: Embed, source: Any, given: Any, table: Array) -> Array:
    if step.pool is None:
        ids = [one_id(source, element) for element in (given if isinstance(given, list) else [given])]
        return table[ids].reshape(-1)
    total, count = np.zeros(step.width, np.float64), 0
    for element in given:
        row = one_id(source, element)
        if step.mask is not None and (element if step.mask.of == source.feature else row) == _bytes(
            step.mask.value
        ):
            continue
        total += table[row]
        count += 1
    return total / max(count, step.floor) if step.pool == "mean" else total


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _number(step: Numeric, value: Any) -> np.float32:
    result = np.float32(value)
    for name, constant in step.chain:
        scalar = {
            "sub": lambda x, c: x - c,
            "div": lambda x, c: x / c,
            "mul": lambda x, c: x * c,
            "log1p": lambda x, _: np.log1p(x),
        }[name]
        result = np.float32(scalar(result, None if constant is None else np.float32(constant)))
    return result
