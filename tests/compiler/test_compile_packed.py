"""Features that a model packs into one input [rows, K]: each column is a feature of its own, natively."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_parts import Made, made, table, variable
from compiler_refusals import I32, I64, F, S

from bireme_runtime.plan import Embed, Subgraph
from bireme_runtime.text_steps import Element


def packed(ids: Any, dtype: Any, side: tuple[str, ...] = (), **parts: Any) -> Made:
    """Rows of a table at ids that `ids(m, x)` makes of a packed input x [rows, 3]."""

    def score(m: Any, x: Any, age: Any, price: Any) -> Any:
        rows = tf.gather(m.rows, ids(m, x))
        return {"score": tf.reduce_sum(tf.reshape(rows, [-1, 2]), -1) * price + age}

    inputs = {"x": (dtype, [None, 3]), "age": (F, [None]), "price": (F, [None])}
    return made({"rows": variable(40, 2), **parts}, score, ("age", *side), **inputs)


#: Case → the model, and the columns that are taken.
CASES: dict[str, tuple[Made, set[int]]] = {
    "integers": (packed(lambda m, x: x[:, 1], I64), {1}),
    "narrow integers": (packed(lambda m, x: x[:, 2], I32), {2}),
    "of the user": (packed(lambda m, x: x[:, 0], I64, ("x",)), {0}),
    "from the end": (packed(lambda m, x: x[:, -1], I64), {2}),
    "a column": (packed(lambda m, x: x[:, 1:2], I64), {1}),
    "the first column": (packed(lambda m, x: x[:, :1], I64), {0}),
    "the last column": (packed(lambda m, x: x[:, -1:], I64), {2}),
    "gathered": (packed(lambda m, x: tf.gather(x, 2, axis=1), I64), {2}),
    "sum of two": (packed(lambda m, x: (x[:, 0] + x[:, 2]) // 2, I64), {0, 2}),
    "of computed integers": (packed(lambda m, x: tf.math.floormod(x * 7, 40)[:, 1], I64), {1}),
    "words": (packed(lambda m, x: tf.strings.to_hash_bucket_fast(x[:, 1], 40), S), {1}),
    "words of a vocabulary": (
        packed(lambda m, x: m.words.lookup(x)[:, 2], S, words=table(["a", "b"], [1, 2], 0)),
        {2},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_columns_of_a_packed_input_are_steps(parity, case):
    model, columns = CASES[case]
    compiled = parity(model)
    assert not [step for step in compiled.plan.steps if isinstance(step, Subgraph)]
    elements = [step for step in compiled.plan.steps if isinstance(step, Element)]
    assert {step.index for step in elements} == columns
    assert {step.length for step in elements} == {3}


def test_an_id_that_has_no_row_is_refused_with_its_candidate(export, tmp_path):
    from compiler_helpers import Served

    from bireme.compiler.pipeline import compile_model
    from bireme.requests import Request
    from bireme_runtime.requests import RequestError

    compiled = compile_model(export(packed(lambda m, x: x[:, 1], I64)), "cpu")
    served = Served(compiled, tmp_path)
    request: Request = {
        "user": {"age": 1.0},
        "items": {"x": [[99, 1, 99], [0, 40, 0]], "price": [1.0, 2.0]},
    }
    with pytest.raises(RequestError, match="'x', candidate 1: the value gives id 40"):
        served.features([request])


def test_a_history_keeps_its_pool_beside_a_single_element(parity):
    """The last click by itself, and the mean of all: one feature, two meanings."""

    def score(m: Any, x: Any, price: Any) -> Any:
        mean = tf.reduce_mean(tf.gather(m.rows, x), 1)
        return {"score": tf.reduce_sum(mean * tf.gather(m.rows, x[:, -1]), -1) + price}

    compiled = parity(made({"rows": variable(40, 2)}, score, ("x",), x=(I64, [None, 5]), price=(F, [None])))
    pools = {step.pool for step in compiled.plan.steps if isinstance(step, Embed)}
    assert pools == {"mean", None}
    assert np.prod([step.width for step in compiled.plan.steps if isinstance(step, Embed)]) == 4
