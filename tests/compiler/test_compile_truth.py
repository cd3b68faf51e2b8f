"""Conditions: what the CPU side decides, true or false, crosses to the dense network that chooses by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import Served, original_scores
from compiler_parts import Made, table, variable
from compiler_refusals import I64, S, small

from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import compile_model
from bireme_runtime.plan import Subgraph


def choice(condition: Callable[..., tf.Tensor], user: tuple[str, ...] = (), **inputs) -> Made:
    """Rows where a condition holds, else other rows that only the dense network knows."""

    def call(m, age, price, **rest):
        dense = tf.tanh(age * 0.3 + price)[:, tf.newaxis] * m.rows[1]
        return tf.reduce_sum(tf.where(condition(m, **rest), dense, 1.0 - dense), -1)

    words = table(["x", "a", "b"], [0, 1, 2], -1)
    made = small(call, {"rows": variable(9, 3), "words": words}, **inputs)
    return Made(made.model, (*made.user, *user), signature=made.signature, spec=made.spec)


def attention(admitted: Callable[..., tf.Tensor]) -> Made:
    """A softmax over the elements of a user's history that a condition admits, if it admits any."""

    def call(m, age, price, clicks, code):
        keys, query = tf.gather(m.rows, clicks), tf.gather(m.rows, code)
        known = admitted(clicks, code)
        dots = tf.where(known, tf.reduce_sum(keys * query[:, tf.newaxis], -1), -1e9)
        pooled = tf.reduce_sum(tf.nn.softmax(dots)[..., tf.newaxis] * keys, 1)
        met = tf.reduce_any(known, 1)[:, tf.newaxis]
        return tf.reduce_sum(tf.where(met, pooled, 0.5), -1) + age * price

    made = small(call, {"rows": variable(9, 3)}, clicks=(I64, [None, 5]), code=(I64, [None]))
    return Made(made.model, (*made.user, "clicks"), signature=made.signature, spec=made.spec)


COLUMN, ONE, FLAG = (I64, [None]), (I64, [None, 1]), (tf.bool, [None])
CASES: dict[str, Callable[[], Made]] = {
    "integer compared": lambda: choice(lambda m, code: (code != 0)[:, tf.newaxis], code=COLUMN),
    "integer of one column": lambda: choice(lambda m, code: code > 3, code=ONE),
    "text compared": lambda: choice(lambda m, word: tf.equal(word, "x")[:, tf.newaxis], word=(S, [None])),
    "in a vocabulary": lambda: choice(lambda m, word: m.words.lookup(word) >= 0, word=(S, [None, 1])),
    "a flag": lambda: choice(lambda m, flag: flag[:, tf.newaxis], flag=FLAG),
    "not a flag": lambda: choice(lambda m, flag: tf.logical_not(flag)[:, tf.newaxis], flag=FLAG),
    "both of two": lambda: choice(
        lambda m, code, flag: tf.logical_and(flag, code < 5)[:, tf.newaxis], code=COLUMN, flag=FLAG
    ),
    "user's and candidate's": lambda: choice(
        lambda m, city, place: tf.equal(city, place)[:, tf.newaxis], ("city",), city=COLUMN, place=COLUMN
    ),
    "what is not padding": lambda: attention(lambda clicks, code: clicks > 0),
    "what is not the candidate": lambda: attention(lambda clicks, code: clicks != code[:, tf.newaxis]),
    "what is neither": lambda: attention(
        lambda clicks, code: tf.logical_and(clicks > 0, clicks != code[:, tf.newaxis])
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_condition_chooses_is_the_originals_choice(export, tmp_path: Path, case: str) -> None:
    spec = export(CASES[case]())
    compiled = compile_model(spec, "cpu")
    (tmp_path / "files").mkdir()
    served, model = Served(compiled, tmp_path / "files"), SavedModel(spec.saved_model)
    requests = served.requests((1, 7, 64, 2))
    for request, scores in zip(requests, served.scores(requests), strict=True):
        wanted = original_scores(model, compiled, request, {"score": "score"})["score"]
        np.testing.assert_allclose(scores["score"], wanted, rtol=1e-5, atol=1e-5)


def test_a_condition_costs_one_column_and_no_other_engine(export) -> None:
    compiled = compile_model(export(CASES["integer compared"]()), "cpu")
    assert compiled.plan.item_width == 2  # price and the condition
    assert not [step for step in compiled.plan.steps if isinstance(step, Subgraph)]
