"""What no feature-plan step does is kept by another engine on the CPU side: no op lost, same scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import Served, original_scores
from compiler_parts import Made, table, variable
from compiler_refusals import I32, I64, F, S, lookup_of_ids, refusal, small

from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import compile_model
from bireme.compiler.reporting.report import as_data
from bireme.errors import SpecError
from bireme.requests import to_tensors
from bireme_runtime.plan import Subgraph


def split_and_pool(m, age, price, word):
    """A maximum over parts of a text: their number is known to no one before the request."""
    parts = tf.strings.split(word, "a").to_tensor("-")
    rows = tf.gather(m.rows, tf.strings.to_hash_bucket_fast(parts, 9))
    counted = tf.where(parts[..., tf.newaxis] == "-", -9.0, rows)
    return age * price + tf.reduce_sum(tf.reduce_max(counted, axis=1), axis=1)


#: Case → the model, and the engine that it needs besides the plan's own steps ("": none).
LEFTOVERS: dict[str, tuple[Callable[[], Made], str]] = {
    "text from a number": (
        lambda: lookup_of_ids(
            lambda m, price, code: tf.strings.to_hash_bucket_fast(tf.as_string(code, name="spell"), 9),
            code=(I64, [None]),
        ),
        "",
    ),
    "salted hash": (
        lambda: lookup_of_ids(
            lambda m, price, word: tf.strings.to_hash_bucket_strong(word, 9, key=[1, 2], name="salted"),
            word=(S, [None]),
        ),
        "",
    ),
    "cross of two words": (
        lambda: lookup_of_ids(
            lambda m, price, a, b: tf.strings.to_hash_bucket_fast(tf.strings.join([a, b], name="cross"), 9),
            a=(S, [None]),
            b=(S, [None]),
        ),
        "",
    ),
    "integer modulo": (
        lambda: lookup_of_ids(
            lambda m, price, code: tf.math.floormod(code, 9, name="fold"), code=(I64, [None])
        ),
        "",
    ),
    "buckets of a transformed number": (
        lambda: lookup_of_ids(
            lambda m, price: tf.raw_ops.Bucketize(
                input=tf.math.log1p(price), boundaries=[0.0, 1.0], name="cutting"
            )
        ),
        "tensorflow",
    ),
    "ids narrowed to a byte": (
        lambda: lookup_of_ids(
            lambda m, price, code: tf.cast(tf.cast(code, tf.uint8, name="narrow"), I32), code=(I64, [None])
        ),
        "onnx",
    ),
    "vocabulary of hashed unknowns": (
        lambda: lookup_of_ids(
            lambda m, price, word: tf.where(
                tf.equal(m.words.lookup(word), -1, name="is_unknown"),
                tf.strings.to_hash_bucket_fast(word, 2) + 7,
                m.words.lookup(word),
            ),
            {"words": table(["a", "b"], [0, 1], -1)},
            word=(S, [None]),
        ),
        "",
    ),
    "ids as numbers": (
        lambda: small(
            lambda m, age, price, word: (
                age + price + tf.cast(tf.strings.to_hash_bucket_fast(word, 9), F, name="as_number")
            ),
            word=(S, [None]),
        ),
        "",
    ),
    "text compared": (
        lambda: small(
            lambda m, age, price, word: age + price + tf.cast(tf.equal(word, "x", name="is_x"), F),
            word=(S, [None]),
        ),
        "",
    ),
    "a table that is computed": (
        lambda: small(
            lambda m, age, price, code: (
                age
                + price
                + tf.reduce_sum(tf.gather(tf.nn.l2_normalize(m.rows, -1), code, name="computed"), -1)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "",
    ),
    "one-hot ids": (
        lambda: small(
            lambda m, age, price, code: age + price + tf.one_hot(code, 4, name="hot")[:, 1],
            code=(I64, [None]),
        ),
        "",
    ),
    "a vector of numbers": (
        lambda: small(
            lambda m, age, price, vector: age + price + tf.reduce_sum(vector, 1, name="added"),
            vector=(F, [None, 4]),
        ),
        "",
    ),
    "double precision": (
        lambda: small(
            lambda m, age, price, big: tf.cast(big * 0.1 + 0.5, F) + age + price,
            big=(tf.float64, [None]),
        ),
        "onnx",
    ),
    "text that becomes a number": (
        lambda: small(
            lambda m, age, price, word: tf.cast(tf.strings.length(word + "!"), F) * 0.1 + age * price,
            word=(S, [None]),
        ),
        "",
    ),
    "text in base 64": (
        lambda: lookup_of_ids(
            lambda m, price, word: tf.strings.to_hash_bucket_fast(tf.io.encode_base64(word), 9),
            word=(S, [None]),
        ),
        "tensorflow",
    ),
    "hashed text in base 64, of both sides": (
        lambda: small(
            lambda m, age, price, word: (
                age * price
                + tf.reduce_sum(
                    tf.gather(
                        m.rows,
                        tf.strings.to_hash_bucket_fast(
                            tf.io.encode_base64(tf.strings.as_string(tf.cast(age, I64)) + word), 9
                        ),
                    ),
                    -1,
                )
            ),
            {"rows": variable(9, 3)},
            word=(S, [None]),
        ),
        "tensorflow",
    ),
    "text split into as many parts as it has": (
        lambda: small(split_and_pool, {"rows": variable(9, 3)}, word=(S, [None])),
        "tensorflow",
    ),
    "half precision": (
        lambda: small(
            lambda m, age, price: tf.cast(tf.cast(age, tf.float16, name="halved") * 2, F) + price,
        ),
        "tensorflow",
    ),
    "a table that is a weight, too": (
        lambda: small(
            lambda m, age, price, code: (
                age + price + tf.reduce_sum(tf.matmul(tf.gather(m.rows, code), m.rows, transpose_b=True), -1)
            ),
            {"rows": variable(9, 3)},
            code=(I64, [None]),
        ),
        "",
    ),
}


def check_parity(spec, folder, counts=(1, 7, 64, 2)):
    """Compile and compare the served halves with the original; the compiled model."""
    compiled = compile_model(spec, "cpu")
    folder.mkdir()
    served = Served(compiled, folder)
    model = SavedModel(spec.saved_model)
    requests = served.requests(counts)
    for request, scores in zip(requests, served.scores(requests), strict=True):
        wanted = original_scores(model, compiled, request, {name: name for name in model.outputs})
        for task, values in wanted.items():
            np.testing.assert_allclose(scores[task], values, rtol=1e-5, atol=1e-5)
    return compiled


@pytest.mark.parametrize("case", LEFTOVERS)
def test_leftovers_keep_their_scores(export, tmp_path, case):
    make, engine = LEFTOVERS[case]
    compiled = check_parity(export(make()), tmp_path / "files")
    engines = {step.engine for step in compiled.plan.steps if isinstance(step, Subgraph)}
    assert engines == ({engine} if engine else set())
    reported = as_data(compiled)["engines"]
    assert [entry["slow"] for entry in reported] == [engine == "tensorflow"] * len(engines)


def attention(m, age, price, clicks, item):
    """A softmax over a history that may have any length, as its padding does not count."""
    history, target = tf.gather(m.rows, clicks), tf.gather(m.rows, item)
    scores = tf.reduce_sum(history * target[:, tf.newaxis], -1)
    scores = tf.where(clicks > 0, scores, -1e9)
    pooled = tf.reduce_sum(tf.nn.softmax(scores)[..., tf.newaxis] * history, 1)
    return tf.reduce_sum(pooled * target, -1) + age * price


def with_history(dims=None):
    inputs = {"clicks": (I64, [None, dims]), "item": (I64, [None])}
    model = small(attention, {"rows": variable(9, 3)}, **inputs)
    return Made(model.model, ("age", "clicks"), signature=model.signature, spec=model.spec)


def test_history_of_any_length_needs_a_fixed_one(export):
    error = refusal(export(with_history()))
    assert "lengths: {clicks: …}" in error.hint


def test_history_gets_a_fixed_length_and_shorter_ones_are_filled_up(export, tmp_path):
    spec = export(with_history()).model_copy(update={"lengths": {"clicks": 6}})
    compiled = check_parity(spec, tmp_path / "files")
    (feature,) = [feature for feature in compiled.plan.features if feature.name == "clicks"]
    assert (feature.length, feature.padding) == (6, 0)
    assert compiled.plan.user_width == 1 + 6 * 3 + 6
    assert not [step for step in compiled.plan.steps if isinstance(step, Subgraph)]


def test_padding_that_changes_scores_stops_the_build(export):
    def unmasked(m, age, price, clicks):
        return tf.reduce_sum(tf.reduce_mean(tf.gather(m.rows, clicks), 1), -1) + age * price

    made_ = small(unmasked, {"rows": variable(9, 3)}, clicks=(I64, [None, None]))
    error = refusal(export(made_).model_copy(update={"lengths": {"clicks": 6}}))
    assert error.where.startswith("pass load")


@pytest.mark.parametrize(
    ("lengths", "where"),
    [
        ({"item": 3}, "lengths: 'item'"),
        ({"clicks": 0}, "lengths: 'clicks'"),
        ({"click": 3}, "lengths: 'click'"),
    ],
)
def test_wrong_lengths_are_named(export, lengths, where):
    spec = export(with_history()).model_copy(update={"lengths": lengths})
    with pytest.raises(SpecError) as caught:
        compile_model(spec, "cpu")
    assert caught.value.where == where


def test_rows_that_are_not_apart_are_refused(export):
    def ranked(m, age, price, code):
        return tf.cast(tf.argsort(code, name="places"), F) + age + price

    error = refusal(export(small(ranked, code=(I64, [None]))))
    assert "other rows" in error.message


def until_done(m, age, price, clicks):
    """As many steps as the history is long; the number of steps is the request's."""
    rows = tf.transpose(tf.gather(m.rows, clicks), [1, 0, 2])
    start = tf.zeros([tf.shape(clicks)[0], 3])
    shapes = [tf.TensorShape([]), tf.TensorShape([None, 3])]
    step = lambda i, h: (i + 1, tf.tanh(h * 0.5 + rows[i]))  # noqa: E731
    _, state = tf.while_loop(lambda i, _: i < tf.shape(rows)[0], step, [0, start], shape_invariants=shapes)
    return tf.reduce_sum(state, 1) + age * price


def inside_a_loop(m, age, price, word):
    """Lookups of a vocabulary and of an embedding table within a loop's body."""
    one = lambda w: tf.reduce_mean(tf.gather(m.rows, m.words.lookup(w)), 0)  # noqa: E731
    return tf.reduce_sum(tf.map_fn(one, word, fn_output_signature=F), 1) + age * price


def looked_up(kind, values, default):
    source = tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant(values, kind))
    return {"words": tf.lookup.StaticHashTable(source, tf.constant(default, kind))}


#: Case → a model that only TensorFlow itself can run in part.
TENSORFLOW_ONLY: dict[str, Callable[[], Made]] = {
    "loop over a history": lambda: small(until_done, {"rows": variable(9, 3)}, clicks=(I64, [None, None])),
    "lookups in a loop": lambda: small(
        inside_a_loop, {"rows": variable(9, 3), "words": table(["a", "b"], [1, 2], 0)}, word=(S, [None, 3])
    ),
    "loop until every row is done": lambda: small(
        lambda m, age, price, code: (
            tf.while_loop(
                lambda i, y: tf.reduce_any(i > 0),
                lambda i, y: (i - 1, tf.where(i > 0, y * 0.5 + 1.0, y)),
                [code, price],
            )[1]
            + age
        ),
        code=(I64, [None]),
    ),
    "branch that changes no row": lambda: small(
        lambda m, age, price: tf.cond(
            tf.reduce_any(price > 2.0), lambda: tf.where(price > 2.0, price, age), lambda: age + 0.0
        )
    ),
    "op that ONNX has not": lambda: small(
        lambda m, age, price: tf.math.igamma(age + 1.0, price) + tf.math.lgamma(price + 1.0)
    ),
    "op that ONNX has not, of rows of a table": lambda: small(
        lambda m, age, price, code: (
            tf.reduce_sum(tf.math.bessel_i0(tf.gather(m.rows, code)), 1) + price * age
        ),
        {"rows": variable(9, 3)},
        code=(I64, [None]),
    ),
    "floats of a vocabulary": lambda: small(
        lambda m, age, price, word: m.words.lookup(word) * age + price,
        looked_up(F, [1.0, 2.0], 0.5),
        word=(S, [None]),
    ),
    "doubles of a vocabulary": lambda: small(
        lambda m, age, price, word: tf.cast(m.words.lookup(word) * 0.1, F) * age + price,
        looked_up(tf.float64, [1.0, 2.0], 0.5),
        word=(S, [None]),
    ),
    "truth of a vocabulary": lambda: small(
        lambda m, age, price, word: tf.where(m.words.lookup(word), age, price),
        looked_up(tf.bool, [True, True], False),
        word=(S, [None]),
    ),
}


@pytest.mark.parametrize("case", TENSORFLOW_ONLY)
def test_what_only_tensorflow_runs(export, tmp_path, case):
    compiled = check_parity(export(TENSORFLOW_ONLY[case]()), tmp_path / "files")
    assert [s.engine for s in compiled.plan.steps if isinstance(s, Subgraph)] == ["tensorflow"]


def test_numbers_of_any_length(export, tmp_path):
    model = small(lambda m, age, price, s: tf.reduce_sum(tf.sqrt(s), 1) + age * price, s=(F, [None, None]))
    compiled = check_parity(export(model), tmp_path / "files")
    assert [s.engine for s in compiled.plan.steps if isinstance(s, Subgraph)] == ["onnx"]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda price, **_: tf.reduce_any(price > 1000.0), {}),
        (lambda word, **_: tf.reduce_any(word == "very important"), {"word": (S, [None])}),
        (lambda code, **_: tf.reduce_min(code) < -77, {"code": (I64, [None])}),
    ],
)
def test_branch_that_one_rare_row_decides_for_all_is_refused(export, function, inputs):
    def score(m, age, price, **rest):
        return tf.cond(function(price=price, **rest), lambda: price + age, lambda: price * age, name="either")

    error = refusal(export(small(score, **inputs)))
    assert "either" in error.where
    assert "other rows" in error.message
    assert "tf.where" in error.hint


def test_values_beside_a_table_inside_a_piece_are_refused_by_name(export, tmp_path):
    compiled = check_parity(
        export(TENSORFLOW_ONLY["op that ONNX has not, of rows of a table"]()), tmp_path / "files"
    )
    served = Served(compiled, tmp_path / "files")
    tensors = [to_tensors(compiled.plan.features, request) for request in served.requests((2, 3))]
    tensors[0]["code"][0, 1] = 9
    bad, good = served.preprocessor.run(tensors)
    assert str(bad) == "feature 'code', candidate 1: the value is 9; the table has rows 0 to 8"
    assert not isinstance(good, Exception)


#: Case → a model without one right score, and its error.
IMPURE: dict[str, tuple[Callable[..., Any], str]] = {
    "dropout": (lambda m, age, price: tf.nn.dropout(age * price, 0.5), "other values at each call"),
    "random in a loop": (
        lambda m, age, price: tf.while_loop(
            lambda y: tf.reduce_any(y < 9.0), lambda y: (y + tf.random.uniform([]),), [price]
        )[0],
        "other values at each call",
    ),
    "shuffle": (
        lambda m, age, price: age * tf.gather(price, tf.random.shuffle(tf.range(tf.shape(price)[0]))),
        "other values at each call",
    ),
    "clock": (lambda m, age, price: age * price + tf.cast(tf.timestamp(), F), "clock"),
    "callback": (lambda m, age, price: age * tf.numpy_function(lambda x: x, [price], F), "Python"),
    "counter": (
        lambda m, age, price: (m.count.assign_add(1.0), age * price + m.count)[1],
        "earlier requests",
    ),
}


@pytest.mark.parametrize("case", IMPURE)
def test_models_without_one_right_score_are_refused(export, case):
    function, message = IMPURE[case]
    error = refusal(export(small(function, {"count": tf.Variable(1.0)})))
    assert message in error.message


def test_counter_that_no_score_reads_is_dropped(export, tmp_path):
    def counted(m, age, price):
        m.count.assign_add(1.0)
        return age * price

    check_parity(export(small(counted, {"count": tf.Variable(1.0)})), tmp_path / "files")


def test_unknown_shape_is_told(export):
    def common(m, age, price, a, b):
        return age * price + tf.cast(tf.sets.size(tf.sets.intersection(a, b)), F)

    error = refusal(export(small(common, a=(I64, [None, 4]), b=(I64, [None, 4]))))
    assert "a tensor of an unknown shape" in error.message
    assert "tf.ensure_shape" in error.hint


def test_shorter_default_of_a_fixed_length_is_filled_up(export, tmp_path):
    spec = export(with_history()).model_copy(
        update={"lengths": {"clicks": 6}, "defaults": {"clicks": [1, 2]}}
    )
    compiled = check_parity(spec, tmp_path / "files")
    served = Served(compiled, tmp_path / "files")
    (request,) = served.requests((3,))
    spelled = {**request, "user": {**request["user"], "clicks": [1, 2]}}
    left_out = {**request, "user": {"age": request["user"]["age"]}}
    first, second = served.scores([spelled, left_out])
    np.testing.assert_array_equal(first["score"], second["score"])
