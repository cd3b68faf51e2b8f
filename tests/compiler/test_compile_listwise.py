"""Listwise models: ops along the rows become ops along one user's candidates, never across users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_dense import Dense, DenseChain
from compiler_helpers import Served, original_scores
from compiler_ops import total
from compiler_parts import Made, made, variable
from keras import layers

from bireme.compiler.ahead.user_ahead import compile_user_ahead
from bireme.compiler.dense import runner
from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import compile_model
from bireme.errors import CompileError
from bireme.requests import to_tensors
from bireme.verify.sampling import sample_requests
from bireme_runtime.plan import Plan
from bireme_runtime.preprocessor import Features

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


def listwise_model() -> Made:
    """A softmax over the list and self-attention across it, behind a table and raw numbers."""
    parts = {"rows": variable(9, 4), "w": variable(6, 4, seed=2), "head": variable(4, 1, seed=3)}

    def call(m: Any, age: Any, price: Any, code: Any) -> Any:
        items = tf.concat([tf.gather(m.rows, code), price[:, None], age[:, None]], 1)
        x = tf.tanh(tf.matmul(items, m.w))
        attended = x + tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x)
        logits = tf.matmul(attended, m.head)[:, 0]
        return {"share": tf.nn.softmax(logits, axis=0), "logit": logits - tf.reduce_mean(logits)}

    inputs = {"age": (tf.float32, [None]), "price": (tf.float32, [None]), "code": (tf.int64, [None])}
    return made(parts, call, ("age",), {"listwise": True}, **inputs)


def test_listwise_model_end_to_end(export, tmp_path):
    spec = export(listwise_model())
    served = Served(compile_model(spec, "cpu"), _folder(tmp_path))
    original = SavedModel(spec.saved_model)
    requests = served.requests([8, 64, 8, 8])
    outputs = {"share": "share", "logit": "logit"}
    for request, scores in zip(requests, served.scores(requests), strict=True):
        for task, wanted in original_scores(original, served.compiled, request, outputs).items():
            np.testing.assert_allclose(scores[task], wanted, rtol=0, atol=1e-5)
        assert scores["share"].sum() == pytest.approx(1.0, abs=1e-5)


def test_request_of_another_length_is_refused_alone(export, tmp_path):
    served = Served(compile_model(export(listwise_model()), "cpu"), _folder(tmp_path))
    good, bad = served.requests([8, 9])
    features = served.compiled.plan.features
    results = served.preprocessor.run([to_tensors(features, request) for request in (good, bad)])
    assert isinstance(results[0], Features)
    assert "exactly one of: 8, 64" in str(results[1])


def test_plan_remembers_that_lists_are_whole(export):
    plan = compile_model(export(listwise_model()), "cpu").plan
    assert Plan.from_json(plan.to_json()).listwise
    counts = {len(request["items"]["price"]) for request in sample_requests(plan, {}, [], 12)}
    assert counts == {8, 64}


def test_listwise_model_is_not_served_in_slices(export):
    spec = export(listwise_model())
    with pytest.raises(CompileError, match="in slices"):
        compile_user_ahead(compile_model(spec, "cpu"), spec)


def _folder(path: Path) -> Path:
    (path / "files").mkdir()
    return path / "files"
