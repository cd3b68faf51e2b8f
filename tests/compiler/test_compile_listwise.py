"""Listwise models: ops along the rows become ops along one user's candidates, never across users."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_dense import Dense, DenseChain
from compiler_ops import total
from keras import layers

from bireme.compiler.dense import runner
from bireme.errors import CompileError

LISTWISE = {
    "softmax": lambda x, u, w: tf.nn.softmax(total(w) + total(u), axis=0) * 10,
    "centred": lambda x, u, w: total(w * tf.reduce_sum(u, 1) - tf.reduce_mean(w, 0)),
    "normalised": lambda x, u, w: total(
        (w - tf.reduce_mean(w, 0, True)) / (1 + tf.math.reduce_std(w, 0, True))
    ),
    "attention by hand": lambda x, u, w: total(
        tf.matmul(tf.nn.softmax(tf.matmul(w, w + u[:, 0], transpose_b=True)), x[:, 1])
    ),
    "compared with the best": lambda x, u, w: total(w) - tf.reduce_max(total(w)) + total(u),
    "compared with the first": lambda x, u, w: total(w) * 2 - total(w)[0] + total(x[:1]),
    "cumulated": lambda x, u, w: tf.cumsum(total(w), exclusive=True) + total(tf.cumsum(x, 0, reverse=True)),
    "how many": lambda x, u, w: total(w) / tf.cast(tf.shape(w)[0], tf.float32),
    "as a batch of one": lambda x, u, w: tf.reshape(
        tf.squeeze(tf.matmul(tf.nn.softmax(tf.einsum("bnd,bmd->bnm", w[None], w[None])), x[None, :, 0]), 0)[
            :, 1
        ],
        [tf.shape(w)[0]],
    ),
    "by weights": lambda x, u, w: total(tf.matmul(w, tf.reduce_mean(x, 0)[:3], transpose_b=True)),
    "ranks": lambda x, u, w: tf.reduce_sum(tf.cast(total(w)[:, None] < total(w)[None], tf.float32), 1),
}


def of_list(function: Any) -> Dense:
    inputs = {"x": ("item", (4, 3)), "u": ("user", (4, 3)), "w": ("item", (3,))}
    return Dense(inputs, function, listwise=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", LISTWISE)
def test_op_along_the_candidates(case, tmp_path):
    DenseChain(of_list(LISTWISE[case]), tmp_path / "saved_model").check()


def re_ranker(user: Any, item: Any) -> Any:
    """Self-attention across the candidates, as a re-ranker has it."""
    x = layers.Dense(8, activation="relu")(layers.Concatenate()([user, item]))
    listed = layers.Lambda(lambda t: t[None])(x)
    attended = layers.LayerNormalization()(listed + layers.MultiHeadAttention(2, 4)(listed, listed))
    attended = layers.Lambda(lambda t: tf.squeeze(t, 0))(attended)
    return layers.Dense(1)(layers.Concatenate()([attended, x]))


def test_self_attention_across_candidates(tmp_path):
    dense = Dense.of_keras(re_ranker, user=("user", (5,)), item=("item", (4,)))
    dense.listwise = True
    DenseChain(dense, tmp_path / "saved_model").check()


def test_users_know_nothing_of_each_other(tmp_path):
    chain = DenseChain(of_list(LISTWISE["attention by hand"]), tmp_path / "saved_model")
    run = runner(chain.lifted)
    halves = chain.halves(3, 8)
    together = run(halves)["score"]
    for user in range(3):
        alone = run({name: value[user : user + 1] for name, value in halves.items()})["score"]
        np.testing.assert_allclose(alone[0], together[user], rtol=0, atol=1e-5)


def test_without_the_field_the_hint_names_it(tmp_path):
    dense = of_list(LISTWISE["softmax"])
    dense.listwise = False
    with pytest.raises(CompileError) as caught:
        _ = DenseChain(dense, tmp_path / "saved_model").lifted
    assert caught.value.where.startswith("op Softmax")
    assert "listwise: true" in caught.value.hint


def test_op_without_a_rule_is_refused(tmp_path):
    chain = DenseChain(of_list(lambda x, u, w: tf.boolean_mask(total(x), w[:, 0] > 0)), tmp_path / "m")
    with pytest.raises(CompileError, match="op NonZero"):
        _ = chain.lifted
