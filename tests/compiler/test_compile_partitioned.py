"""Tables in several variables: looked up as one, exported in the order of their ids."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from compiler_tf1 import Tf1, inputs, v1, weights

from bireme.compiler.rules.partitioned import Shards, deal
from bireme.compiler.tables.tables_export import row_chunks

F, I64 = tf.float32, tf.int64


def lookup_model(strategy, shards, rows, shape=(None,), sparse=False):
    def build():
        given = inputs(code=(I64, list(shape)), age=(F, [None]), price=(F, [None]))
        table = weights("table", rows, 3, shards=shards)
        if sparse:
            ids = tf.sparse.from_dense(given["code"])
            found = v1.nn.safe_embedding_lookup_sparse(table, ids, partition_strategy=strategy)
        else:
            found = v1.nn.embedding_lookup(table, given["code"], partition_strategy=strategy)
        if len(shape) == 2 and not sparse:
            found = tf.reduce_sum(found * tf.cast(tf.not_equal(given["code"], 0), F)[:, :, None], 1)
        score = tf.reduce_sum(found * tf.range(1.0, 4.0), -1) + given["age"] * given["price"]
        return given, {"score": score}

    return Tf1(build, ("age",))


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize(("shards", "rows"), [(3, 10), (4, 16), (2, 3)])
def test_shards_are_one_table(parity, strategy, shards, rows):
    compiled = parity(lookup_model(strategy, shards, rows))
    (table,) = compiled.plan.tables
    assert (table.name, table.rows, table.width) == ("table", rows, 3)


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_sequences(parity, strategy):
    compiled = parity(lookup_model(strategy, 3, 10, (None, None)))
    assert [table.rows for table in compiled.plan.tables] == [10]


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_sparse_lookups(parity, strategy):
    compiled = parity(lookup_model(strategy, 3, 10, (None, None), sparse=True))
    assert [step.pool for step in compiled.plan.steps if step.op == "embed"] == ["mean"]


@pytest.mark.parametrize(("strategy", "sizes"), [("div", [4, 3, 3]), ("mod", [4, 3, 3]), ("div", [1, 5])])
def test_rows_leave_in_the_order_of_their_ids(strategy, sizes):
    whole = np.random.default_rng(0).normal(size=(sum(sizes), 2)).astype(np.float32)
    shards, rows = deal(strategy, np.arange(len(whole)), sizes)
    parts = []
    for number, size in enumerate(sizes):
        part = np.zeros((size, 2), np.float32)
        part[rows[shards == number]] = whole[shards == number]
        parts.append(tf.Variable(part, name=f"t/part_{number}"))
    table = Shards(parts, strategy)
    pieces = list(row_chunks(table, size=3 * 8))
    assert [len(piece) for piece in pieces][:2] == [3, 3]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
