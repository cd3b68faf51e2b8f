"""Models that look like what a rule knows, and mean something else: the scores are the original's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_parts import Made, made, table, variable
from compiler_refusals import I32, I64, F, S, lookup_of_ids

from bireme.compiler.pipeline import compile_model
from bireme.errors import CompileError, SpecError


def kept(ids: Any, value: int = 0) -> Any:
    return tf.cast(tf.not_equal(ids, value), F)[..., tf.newaxis]


def of_history(pool: Callable[..., Any], length: int | None = None, **parts: Any) -> Made:
    """A history of ids [1, 40) (0: none) and a weight for each, pooled by `pool(m, rows, ids, weights)`."""

    def score(m: Any, ids: Any, weights: Any, price: Any) -> Any:
        pooled = pool(m, tf.gather(m.rows, ids), ids, weights)
        return {"score": tf.reduce_sum(pooled, -1) + price}

    shape = [None, length]
    return made(
        {"rows": variable(40, 3), **parts},
        score,
        ("ids", "weights"),
        ids=(I64, shape),
        weights=(F, shape),
        price=(F, [None]),
    )


def segments(ids: Any) -> tuple[Any, Any]:
    """Elements that are not 0, and their rows' numbers."""
    places = tf.where(tf.not_equal(ids, 0))
    return places, places[:, 0]


def retained(m: Any, ids: Any, test: Callable[[Any], Any]) -> Any:
    """A sum over those of the elements of a sparse tensor that pass another test."""
    sparse = tf.sparse.from_dense(ids)
    return tf.nn.safe_embedding_lookup_sparse(
        m.rows, tf.sparse.retain(sparse, test(sparse.values)), None, "sum"
    )


SIGNED = (["a", "b", "c"], [1, -1, 2], 0)

CASES: dict[str, Callable[[], Made]] = {
    "mean of weighted rows": lambda: of_history(
        lambda m, rows, ids, weights: tf.reduce_mean(rows * weights[..., tf.newaxis], 1), 4
    ),
    "rows that have weights, one by one": lambda: of_history(
        lambda m, rows, ids, weights: tf.reduce_max(tf.sigmoid(rows * weights[..., tf.newaxis]), 1), 4
    ),
    "elements that are neither 0 nor 5": lambda: of_history(
        lambda m, rows, ids, weights: retained(m, ids, lambda x: tf.not_equal(x, 5))
    ),
    "elements of 5 or more": lambda: of_history(
        lambda m, rows, ids, weights: retained(m, ids, lambda x: x >= 5)
    ),
    "two masks": lambda: of_history(
        lambda m, rows, ids, weights: tf.reduce_sum(rows * kept(ids) * kept(ids, 3), 1)
    ),
    "hours that wrap": lambda: lookup_of_ids(
        lambda m, price, hour: tf.where(hour < 0, hour + 9, hour), hour=(I64, [None])
    ),
    "hours that wrap, as a number": lambda: lookup_of_ids(
        lambda m, price, hour: tf.cast(tf.cast(tf.where(hour < 0, hour + 5, hour), F) > 2.0, I64),
        hour=(I64, [None]),
    ),
    "table of signed ids, above 0": lambda: lookup_of_ids(
        lambda m, price, word: tf.cast(m.words.lookup(word) > 0, I64),
        {"words": table(*SIGNED)},
        word=(S, [None]),
    ),
    "mask of signed ids": lambda: made(
        {"words": table(*SIGNED), "rows": variable(3, 3)},
        lambda m, words, price: {
            "score": tf.reduce_sum(
                tf.reduce_sum(
                    tf.gather(m.rows, tf.maximum(m.words.lookup(words), 0))
                    * tf.cast(m.words.lookup(words) > 0, F)[..., tf.newaxis],
                    1,
                ),
                -1,
            )
            + price
        },
        ("words",),
        words=(S, [None, None]),
        price=(F, [None]),
    ),
    "mask token that is below 0": lambda: made(
        {"words": table(["a", "b"], [1, 2], 0), "rows": variable(3, 3)},
        lambda m, words, price: {
            "score": tf.reduce_sum(
                tf.cast(tf.where(words == "b", tf.constant(-1, I64), m.words.lookup(words)) > 0, F)
                * tf.constant([1.0, 2.0, 4.0]),
                1,
            )
            + price
        },
        ("words",),
        words=(S, [None, 3]),
        price=(F, [None]),
    ),
    "one-hot of a fixed history, flat": lambda: of_history(
        lambda m, rows, ids, weights: tf.reshape(tf.one_hot(ids, 7), [-1, 28]) @ m.layer,
        4,
        layer=variable(28, 2),
    ),
    "one-hot of a history without its padding": lambda: of_history(
        lambda m, rows, ids, weights: tf.reduce_sum(tf.one_hot(ids, 7) * kept(ids), 1) @ m.layer,
        layer=variable(7, 2),
    ),
    "counts of ids narrowed to a byte": lambda: of_history(
        lambda m, rows, ids, weights: tf.math.bincount(
            tf.cast(tf.cast(ids + 250, tf.uint8), I32), minlength=40, maxlength=40, dtype=F, axis=-1
        )
    ),
    "mean over a count and a half": lambda: of_history(
        lambda m, rows, ids, weights: tf.reduce_sum(rows * kept(ids), 1) / (tf.reduce_sum(kept(ids), 1) + 0.5)
    ),
    "mean over a count and a little": lambda: of_history(
        lambda m, rows, ids, weights: (
            tf.reduce_sum(rows * kept(ids), 1) / (tf.reduce_sum(kept(ids), 1, keepdims=False) + 1e-6)
        )
    ),
    "how long a history is": lambda: of_history(
        lambda m, rows, ids, weights: (
            tf.reduce_sum(tf.gather(m.rows, ids) * kept(ids), 1) * tf.math.log1p(tf.reduce_sum(kept(ids), 1))
            + tf.sqrt(tf.maximum(tf.reduce_sum(kept(ids, 3), 1), 2.0))
        )
    ),
    "mean over a product of masks": lambda: of_history(
        lambda m, rows, ids, weights: (
            tf.reduce_sum(rows * kept(ids, 3) * kept(ids), 1)
            / tf.maximum(tf.reduce_sum(kept(ids) * kept(ids, 3), 1), 1.0)
        )
    ),
    "mean of one mask over the count of another": lambda: of_history(
        lambda m, rows, ids, weights: (
            tf.reduce_sum(rows * kept(ids, 3), 1) / tf.maximum(tf.reduce_sum(kept(ids), 1), 1.0)
        ),
        4,
    ),
    "mean of a column of one": lambda: of_history(
        lambda m, rows, ids, weights: (
            tf.reduce_sum(tf.gather(m.narrow, ids) * tf.cast(ids != 0, F), 1)
            / tf.maximum(tf.reduce_sum(tf.cast(ids != 0, F), 1), 1.0)
        )[:, tf.newaxis],
        narrow=variable(40),
    ),
    "one weight for a whole history": lambda: made(
        {"rows": variable(40)},
        lambda m, ids, weight, price: {"score": tf.reduce_sum(tf.gather(m.rows, ids) * weight, 1) + price},
        ("ids",),
        ids=(I64, [None, 4]),
        weight=(F, [None, 1]),
        price=(F, [None]),
    ),
    "remapped ids": lambda: lookup_of_ids(
        lambda m, price, code: tf.gather(m.remap, code),
        {"remap": tf.Variable(np.array([3, 0, 8, 1], np.int64))},
        code=(I64, [None]),
    ),
    "packed integers": lambda: lookup_of_ids(lambda m, price, packed: packed[:, 1], packed=(I64, [None, 3])),
    "constant of a higher rank": lambda: lookup_of_ids(
        lambda m, price, word: tf.cast(tf.equal(word, [["a"]])[0], I64), word=(S, [None])
    ),
    "column of one": lambda: of_history(
        lambda m, rows, ids, weights: tf.reduce_sum(
            tf.gather(m.narrow, ids)[..., 0] * tf.cast(ids != 0, F), 1, keepdims=True
        ),
        narrow=variable(40, 1),
    ),
    "sum over the columns": lambda: of_history(
        lambda m, rows, ids, weights: tf.reduce_sum(tf.reduce_max(rows * kept(ids), -1), 1, keepdims=True), 4
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_originals(parity, case):
    parity(CASES[case]())


def test_sequences_of_both_sides_that_a_model_pairs_are_refused_by_name(export):
    """The ids are made of a user's and a candidate's sequence, the mask of the user's alone."""

    def score(m: Any, seen: Any, shown: Any, price: Any) -> Any:
        ids = tf.strings.to_hash_bucket_fast(tf.strings.join([seen, shown]), 9)
        masked = tf.gather(m.rows, ids) * tf.cast(seen != "", F)[..., tf.newaxis]
        return {"score": tf.reduce_sum(tf.reduce_sum(masked, 1), -1) + price}

    inputs = {"seen": (S, [None, 2]), "shown": (S, [None, 2]), "price": (F, [None])}
    with pytest.raises(SpecError, match="puts 'shown' and 'seen' on different sides"):
        compile_model(export(made({"rows": variable(9, 3)}, score, ("seen",), **inputs)), "cpu")


def test_a_mean_of_weighted_rows_of_any_length_is_refused(export):
    """No plan step divides by a length what has weights: their sum would be the divisor."""
    model = of_history(lambda m, rows, ids, weights: tf.reduce_mean(rows * weights[..., tf.newaxis], 1))
    with pytest.raises(CompileError, match="unpooled sequence"):
        compile_model(export(model), "cpu")


def test_integers_that_wrap_around_something_else_than_the_table_are_served(parity):
    """Hour -3 is hour 2 of 5 here; rows below 0, which Keras counts from the end, stay refused."""
    model = lookup_of_ids(
        lambda m, price, hour: tf.where(hour < 0, hour + 5, hour, name="wrap"), hour=(I64, [None])
    )
    wanted = {"user": {"age": 1.0}, "items": {"price": [1.0, 2.0, 3.0], "hour": [-3, 4, -1]}}
    compiled = parity(model, [wanted])
    assert {step.function for step in compiled.plan.steps if step.op == "compute"} == {"less", "add", "where"}
