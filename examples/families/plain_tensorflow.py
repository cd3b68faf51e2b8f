"""Our own models without Keras: tf.Module with lookup tables, sparse and ragged tensors, string ops."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from subject_parts import Draw, Made, ids, numbers, words

__all__ = ["MODELS"]

_DIM = 8
_COLOURS = ["red", "green", "blue", "grün"]
_CITIES = ["Oslo", "Köln", "Lima", "Pune", "Москва"]


class _Module(tf.Module):
    """Keeps the variables and tables of one model, as saving asks for."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(5)
        self.kept: list[Any] = []

    def keep(self, part: Any) -> Any:
        """A variable or lookup table."""
        self.kept.append(part)
        return part

    def table(self, rows: int, name: str) -> Any:
        """An embedding table."""
        return self.keep(tf.Variable(self._rng.normal(0, 0.3, (rows, _DIM)).astype(np.float32), name=name))

    def dense(self, inner: int, outer: int) -> Callable[[Any], Any]:
        """A dense layer."""
        values = self._rng.normal(0, 1.2 / inner**0.5, (inner, outer)).astype(np.float32)
        kernel = self.keep(tf.Variable(values, name="kernel"))
        bias = self.keep(tf.Variable(self._rng.normal(0, 0.3, outer).astype(np.float32), name="bias"))
        return lambda x: tf.matmul(x, kernel) + bias

    def network(self, width: int) -> Callable[..., dict[str, Any]]:
        """Blocks of `width` columns together → a probability [rows]."""
        hidden, logit = self.dense(width, 16), self.dense(16, 1)

        def score(*blocks: Any) -> dict[str, Any]:
            return {"score": tf.sigmoid(logit(tf.nn.relu(hidden(tf.concat(blocks, axis=1)))))[:, 0]}

        return score


def _made(
    module: _Module,
    call: Callable[..., Any],
    draws: dict[str, Draw],
    user: tuple[str, ...],
    *specs: Any,
    **more: Any,
) -> Made:
    """Trace `call(**inputs)`; `specs` are the inputs' TensorSpecs, each with its name."""
    concrete = tf.function(call, autograph=False).get_concrete_function(**{spec.name: spec for spec in specs})
    return Made(lambda folder: tf.saved_model.save(module, folder, signatures=concrete), user, draws, **more)


def _one(name: str, dtype: Any) -> Any:
    return tf.TensorSpec([None], dtype, name)


def _many(name: str, dtype: Any) -> Any:
    return tf.TensorSpec([None, None], dtype, name)


def _table_of(keys: Any, values: Any) -> Any:
    return tf.lookup.KeyValueTensorInitializer(keys, values)


def _lookup_tables() -> Made:
    """Every kind of table: constant, with OOV buckets, from an asset file, strings to strings."""
    m, t, gather = _Module(), tf.lookup, tf.nn.embedding_lookup
    file = Path(tempfile.mkdtemp()) / "cities.txt"
    file.write_text("\n".join(_CITIES), encoding="utf-8")
    index = t.TextFileIndex
    lines = t.TextFileInitializer(str(file), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
    colours = m.keep(t.StaticHashTable(_table_of(_COLOURS, tf.range(1, 5, dtype=tf.int64)), 0))
    cities = m.keep(t.StaticVocabularyTable(lines, num_oov_buckets=3))
    codes = m.keep(
        t.StaticHashTable(_table_of(tf.constant([7, -3, 4], tf.int64), tf.constant([1, 2, 3], tf.int64)), 0)
    )
    groups = m.keep(t.StaticHashTable(_table_of(_COLOURS, ["warm", "cold", "cold", "cold"]), "none"))
    group_ids = m.keep(t.StaticHashTable(_table_of(["warm", "cold"], tf.constant([1, 2], tf.int64)), 0))
    colour_rows, city_rows = m.table(5, "colours"), m.table(8, "cities")
    code_rows, group_rows = m.table(4, "codes"), m.table(3, "groups")
    score = m.network(4 * _DIM + 1)

    def call(colour: Any, city: Any, code: Any, price: Any) -> dict[str, Any]:
        return score(
            gather(colour_rows, colours.lookup(colour)),
            gather(city_rows, cities.lookup(city)),
            gather(code_rows, codes.lookup(tf.cast(code, tf.int64))),
            gather(group_rows, group_ids.lookup(groups.lookup(colour))),
            tf.math.log1p(price)[:, None],
        )

    draws = {"colour": words(_COLOURS), "city": words(_CITIES), "code": ids(-5, 10), "price": numbers(0, 90)}
    specs = (
        _one("colour", tf.string),
        _one("city", tf.string),
        _one("code", tf.int32),
        _one("price", tf.float32),
    )
    return _made(m, call, draws, ("city",), *specs, tells="tables: OOV buckets, asset file, string to string")


def _sparse_lookup() -> Made:
    """embedding_lookup_sparse and its safe form on sparse tensors made in the graph, with weights."""
    m, nn = _Module(), tf.nn
    seen_rows, weighed_rows, root_rows, liked_rows = (
        m.table(40, n) for n in ("seen", "weighed", "root", "liked")
    )
    score = m.network(4 * _DIM)

    def call(seen: Any, liked: Any, weights: Any) -> dict[str, Any]:
        where, shape = tf.where(tf.not_equal(seen, 0)), tf.shape(seen, tf.int64)
        bag = tf.SparseTensor(where, tf.gather_nd(seen, where), shape)
        weighed = tf.SparseTensor(where, tf.gather_nd(weights, where), shape)
        like = tf.sparse.from_dense(liked)
        return score(
            nn.safe_embedding_lookup_sparse(seen_rows, bag, combiner="mean"),
            nn.safe_embedding_lookup_sparse(weighed_rows, bag, weighed, combiner="mean"),
            nn.safe_embedding_lookup_sparse(root_rows, like, combiner="sqrtn"),
            nn.embedding_lookup_sparse(liked_rows, like, None, combiner="sum"),
        )

    draws = {"seen": ids(1, 40, 5, pad=0), "liked": ids(1, 40, 4), "weights": numbers(0.1, 3, 5)}
    specs = (
        tf.TensorSpec([None, 5], tf.int64, "seen"),
        tf.TensorSpec([None, 4], tf.int64, "liked"),
        tf.TensorSpec([None, 5], tf.float32, "weights"),
    )
    return _made(m, call, draws, ("seen", "weights"), *specs, tells="embedding_lookup_sparse, safe, weighted")


def _named(name: str, spec: Any) -> Any:
    """A sparse or ragged TensorSpec under an input's name."""
    spec.name = name
    return spec


def _sparse_inputs() -> Made:
    """Sparse tensors in the signature."""
    m = _Module()
    tag_rows, item_rows, score = m.table(40, "tags"), m.table(60, "items"), m.network(2 * _DIM + 1)

    def call(tags: Any, item: Any, price: Any) -> dict[str, Any]:
        pooled = tf.nn.safe_embedding_lookup_sparse(tag_rows, tags, combiner="mean")
        return score(pooled, tf.nn.embedding_lookup(item_rows, item), price[:, None])

    draws = {"tags": ids(0, 40, [0, 6]), "item": ids(0, 60), "price": numbers(0, 3)}
    sparse = _named("tags", tf.SparseTensorSpec([None, None], tf.int64))
    specs = (sparse, _one("item", tf.int64), _one("price", tf.float32))
    return _made(m, call, draws, ("tags",), *specs, tells="SparseTensor in the signature")


def _ragged_inputs() -> Made:
    """Ragged tensors in the signature: strings and integers."""
    m, flat = _Module(), tf.ragged.map_flat_values
    cities = m.keep(tf.lookup.StaticHashTable(_table_of(_CITIES, tf.range(1, 6, dtype=tf.int64)), 0))
    city_rows, item_rows, score = m.table(6, "cities"), m.table(60, "items"), m.network(2 * _DIM)

    def call(visited: Any, bought: Any) -> dict[str, Any]:
        rows = flat(lambda x: tf.nn.embedding_lookup(city_rows, cities.lookup(x)), visited)
        items = flat(lambda x: tf.nn.embedding_lookup(item_rows, x), bought)
        count = tf.cast(visited.row_lengths(), tf.float32)[:, None]
        total, bag = (tf.reshape(tf.reduce_sum(x, axis=1), [-1, _DIM]) for x in (rows, items))
        return score(tf.math.divide_no_nan(total, count), bag)

    draws = {"visited": words(_CITIES, [0, 5]), "bought": ids(0, 60, [1, 4])}
    specs = (
        _named("visited", tf.RaggedTensorSpec([None, None], tf.string)),
        _named("bought", tf.RaggedTensorSpec([None, None], tf.int64)),
    )
    return _made(m, call, draws, ("visited",), *specs, tells="RaggedTensor in the signature")


def _ragged_in_graph() -> Made:
    """Text split into a ragged tensor in the graph, looked up, averaged."""
    m = _Module()
    table = _table_of(_COLOURS, tf.range(4, dtype=tf.int64))
    colours = m.keep(tf.lookup.StaticVocabularyTable(table, 2))
    colour_rows, item_rows, score = m.table(6, "colours"), m.table(60, "items"), m.network(2 * _DIM)

    def call(title: Any, item: Any) -> dict[str, Any]:
        found = colours.lookup(tf.strings.split(title, ","))
        rows = tf.ragged.map_flat_values(tf.nn.embedding_lookup, colour_rows, found)
        total = tf.reshape(tf.reduce_sum(rows, axis=1), [-1, _DIM])
        count = tf.cast(found.row_lengths(), tf.float32)[:, None]
        return score(tf.math.divide_no_nan(total, count), tf.nn.embedding_lookup(item_rows, item))

    draws = {"title": words(["red,green", "blue", "", "grün,red,red", "x,y"]), "item": ids(0, 60)}
    specs = (_one("title", tf.string), _one("item", tf.int64))
    return _made(m, call, draws, ("title",), *specs, tells="split into a RaggedTensor in the graph")


def _strings() -> Made:
    """Strings hashed in both ways, cut out, joined, parsed, replaced, split."""
    m, s, lookup = _Module(), tf.strings, tf.nn.embedding_lookup
    fast, strong, joined = m.table(50, "fast"), m.table(40, "strong"), m.table(60, "joined")
    cut, word, score = m.table(20, "cut"), m.table(30, "word"), m.network(5 * _DIM + 2)

    def call(user: Any, query: Any, item: Any, amount: Any) -> dict[str, Any]:
        split = s.split(s.regex_replace(s.lower(query), r"[^a-z ]", ""), " ").to_tensor("")
        seen = lookup(word, s.to_hash_bucket_fast(split, 30)) * tf.cast(split != "", tf.float32)[..., None]
        return score(
            lookup(fast, s.to_hash_bucket_fast(user, 50)),
            lookup(strong, s.to_hash_bucket_strong(item, 40, [11, 22])),
            lookup(joined, s.to_hash_bucket_fast(s.join([user, item], separator="_x_"), 60)),
            lookup(cut, s.to_hash_bucket_fast(s.substr(item, 0, 3), 20)),
            tf.reduce_sum(seen, axis=1),
            s.to_number(amount)[:, None] / 100.0,
            tf.cast(s.length(query), tf.float32)[:, None] / 10.0,
        )

    draws = {
        "user": words([f"user {i}" for i in range(90)]),
        "query": words(["Red shoes", "blue hat!", "", "для детей", "a b c d"]),
        "item": words([f"{i:06d}" for i in range(70)], unknown=0),
        "amount": words([str(i / 4) for i in range(-20, 400)], unknown=0),
    }
    specs = [_one(name, tf.string) for name in draws]
    return _made(
        m, call, draws, ("user", "query"), *specs, tells="strong hash, join, substr, regex, split, number"
    )


def _numbers() -> Made:
    """Numbers bucketed, searched, clipped, crossed by arithmetic; dates as integers."""
    m, lookup = _Module(), tf.nn.embedding_lookup
    age_rows, price_rows = m.table(6, "ages"), m.table(5, "prices")
    cross_rows, day_rows, score = m.table(24, "crosses"), m.table(7, "days"), m.network(4 * _DIM + 2)
    edges = tf.constant([1.0, 5.0, 20.0, 100.0])

    def call(age: Any, price: Any, hour: Any, stamp: Any) -> dict[str, Any]:
        cross = tf.clip_by_value(hour, 0, 11) * 2 + tf.cast(price > 10.0, tf.int32)
        return score(
            lookup(age_rows, tf.raw_ops.Bucketize(input=age, boundaries=[18, 25, 35, 50, 65])),
            lookup(price_rows, tf.searchsorted(edges, price, side="right")),
            lookup(cross_rows, cross),
            lookup(day_rows, tf.math.floormod(tf.math.floordiv(stamp, 86400), 7)),
            tf.clip_by_value(price, 0.0, 50.0)[:, None] / 25.0,
            tf.where(price > 30.0, 1.0, 0.0)[:, None],
        )

    draws = {"age": ids(0, 90), "price": numbers(0, 150), "hour": ids(0, 24), "stamp": ids(0, 2_000_000_000)}
    specs = (
        _one("age", tf.int32),
        _one("price", tf.float32),
        _one("hour", tf.int32),
        _one("stamp", tf.int64),
    )
    return _made(m, call, draws, ("age", "hour"), *specs, tells="bucketize, searchsorted, integer arithmetic")


MODELS: dict[str, Callable[[], Made]] = {
    "tf_lookup_tables": _lookup_tables,
    "tf_sparse_lookup": _sparse_lookup,
    "tf_sparse_inputs": _sparse_inputs,
    "tf_ragged_inputs": _ragged_inputs,
    "tf_ragged_in_graph": _ragged_in_graph,
    "tf_strings": _strings,
    "tf_numbers": _numbers,
}
