"""What no feature-plan step does is kept by another engine on the CPU side: no op lost, same scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from compiler_helpers import Served, original_scores
from compiler_parts import Made, table, variable
from compiler_refusals import I32, I64, F, S, lookup_of_ids, refusal, small

from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import compile_model
from bireme.compiler.report import as_data
from bireme.errors import SpecError
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
