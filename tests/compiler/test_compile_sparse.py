"""Sparse and ragged lookups, made in the graph or in the request, against the original."""

from __future__ import annotations

import pytest
import tensorflow as tf
from compiler_helpers import Served, make_spec
from compiler_parts import made, variable

from bireme.compiler.pipeline import compile_model
from bireme.errors import SpecError
from bireme_runtime.requests import RequestError

S, F, I64, I32 = tf.string, tf.float32, tf.int64, tf.int32
ROWS = 12


def embeds(compiled):
    return [step for step in compiled.plan.steps if step.op == "embed"]


def scored(function, parts=None, spec=None, **inputs):
    """A model whose score is that of `function`, an embedding [rows, 3], and of two plain features."""

    def model(m, age, price, **values):
        return {"score": tf.reduce_sum(function(m, **values) * tf.range(1.0, 4.0), -1) + price * age}

    return made(
        {"rows": variable(ROWS, 3), **(parts or {})},
        model,
        ("age", *(name for name in inputs if name.startswith("user"))),
        spec,
        age=(F, [None]),
        price=(F, [None]),
        **inputs,
    )


PADDED = (I64, [None, None])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("safe", [True, False])
def test_lookup_of_a_sparse_tensor_made_in_the_graph(parity, combiner, safe):
    def lookup(m, tags):
        ids = tf.sparse.from_dense(tags)
        if safe:
            return tf.nn.safe_embedding_lookup_sparse(m.rows, ids, combiner=combiner)
        return tf.nn.embedding_lookup_sparse(m.rows, ids, None, combiner=combiner)

    compiled = parity(scored(lookup, tags=PADDED))
    (step,) = embeds(compiled)
    assert step.pool == combiner
    assert step.present == ("" if safe else "last")


SPARSE = tf.SparseTensorSpec([None, None], tf.int64)
RAGGED = tf.RaggedTensorSpec([None, None], tf.int64)


def composite(function, parts=None, spec=None, user=(), **inputs):
    """Like `scored`, for inputs that are type specs of their own."""
    from compiler_parts import Made, Module

    module = Module(rows=variable(ROWS, 3), **(parts or {}))

    def model(age, price, **values):
        return {"score": tf.reduce_sum(function(module, **values) * tf.range(1.0, 4.0), -1) + price * age}

    scalar = {name: tf.TensorSpec([None], F, name) for name in ("age", "price")}
    module.call = tf.function(model, autograph=False).get_concrete_function(**scalar, **inputs)
    return Made(module, ("age", *user), module.call, spec or {})


@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_sparse_input(parity, combiner, side):
    model = composite(
        lambda m, tags: tf.nn.safe_embedding_lookup_sparse(m.rows, tags, combiner=combiner),
        user=("tags",) if side == "user" else (),
        tags=SPARSE,
    )
    compiled = parity(model)
    feature = next(f for f in compiled.plan.features if f.name == "tags")
    assert (feature.length, feature.padding, feature.side, feature.dtype) == (-1, -1, side, "int64")


LOOKUPS = {
    "lookup": lambda m, tags: tf.nn.embedding_lookup_sparse(m.rows, tags, None, combiner="mean"),
    "sparse": lambda m, tags: tf.nn.safe_embedding_lookup_sparse(m.rows, tags.to_sparse()),
    "mean": lambda m, tags: tf.reduce_mean(tf.gather(m.rows, tags), axis=1),
    "sum": lambda m, tags: tf.reduce_sum(tf.gather(m.rows, tags), axis=1),
    "max": lambda m, tags: tf.reduce_max(tf.gather(m.rows, tags), axis=1),
    "mask": lambda m, tags: tf.reduce_sum(
        tf.gather(m.rows, tags.to_tensor()) * tf.sequence_mask(tags.row_lengths(), dtype=F)[:, :, None],
        1,
    ),
    "test": lambda m, tags: tf.reduce_sum(
        tf.gather(m.rows, tags.to_tensor(0)) * tf.cast(tags.to_tensor(0) != 0, F)[:, :, None], 1
    ),
    "lengths": lambda m, tags: tf.math.divide_no_nan(
        tf.reduce_sum(tf.gather(m.rows, tags), axis=1), tf.cast(tags.row_lengths(), F)[:, None]
    ),
}


@pytest.mark.parametrize("form", LOOKUPS)
def test_ragged_input(parity, form):
    compiled = parity(composite(LOOKUPS[form], tags=RAGGED))
    assert len(embeds(compiled)) == 1


WEIGHTS = tf.SparseTensorSpec([None, None], F)
NAMES = tf.SparseTensorSpec([None, None], tf.string)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("safe", [True, False])
def test_weights_come_with_the_ids(parity, combiner, safe):
    lookup = tf.nn.safe_embedding_lookup_sparse if safe else tf.nn.embedding_lookup_sparse
    compiled = parity(
        composite(
            lambda m, tags, weights: lookup(m.rows, tags, weights, combiner=combiner),
            tags=SPARSE,
            weights=WEIGHTS,
        )
    )
    (step,) = embeds(compiled)
    assert (step.weights, step.pool) == ("weights", combiner)


def test_weights_made_in_the_graph(parity):
    def lookup(m, tags, weights):
        ids = tf.sparse.from_dense(tags)
        return tf.nn.safe_embedding_lookup_sparse(
            m.rows, ids, tf.SparseTensor(ids.indices, tf.gather_nd(weights, ids.indices), ids.dense_shape)
        )

    parity(scored(lookup, tags=PADDED, weights=(F, [None, None])))


def test_strings_are_hashed_where_they_are_present(parity):
    def lookup(m, names):
        ids = tf.SparseTensor(
            names.indices, tf.strings.to_hash_bucket_fast(names.values, ROWS), names.dense_shape
        )
        return tf.nn.safe_embedding_lookup_sparse(m.rows, ids, combiner="sum")

    compiled = parity(composite(lookup, names=NAMES, user=("names",)))
    feature = next(f for f in compiled.plan.features if f.name == "names")
    assert (feature.padding, feature.dtype) == ("", "string")


def test_rows_without_elements_may_get_an_id_of_their_own(parity):
    compiled = parity(
        composite(lambda m, tags: tf.nn.safe_embedding_lookup_sparse(m.rows, tags, default_id=5), tags=SPARSE)
    )
    assert [step.fill for step in embeds(compiled)] == [5]


@pytest.mark.parametrize("padding", [-7, 0, 3])
def test_padding_is_the_specs(parity, padding):
    """3 is a row of the table as well: an element of that value is then always absent."""
    request = {
        "user": {"age": 0.5},
        "items": {"tags": [[1, padding, 4], [padding] * 3, [5, 5, 5]], "price": [1.0, 2.0, 3.0]},
    }
    model = composite(
        lambda m, tags: tf.nn.safe_embedding_lookup_sparse(m.rows, tags),
        spec={"padding": {"tags": padding}},
        tags=SPARSE,
    )
    parity(model, [request])


@pytest.mark.parametrize(
    ("padding", "said"),
    [
        ({"age": 1}, "neither a sparse nor a ragged input"),
        ({"tag": 1}, "did you mean 'tags'?"),
        ({"tags": "x"}, "int64"),
        ({"tags": [1]}, "single value"),
    ],
)
def test_padding_that_does_not_fit_is_refused(export, padding, said):
    model = composite(LOOKUPS["lookup"], spec={"padding": padding}, tags=RAGGED)
    with pytest.raises(SpecError) as caught:
        compile_model(export(model), "cpu")
    assert said in str(caught.value) + caught.value.hint


def test_ids_and_weights_on_different_sides_are_refused(export):
    model = composite(
        lambda m, tags, weights: tf.nn.embedding_lookup_sparse(m.rows, tags, weights),
        user=("weights",),
        tags=SPARSE,
        weights=WEIGHTS,
    )
    with pytest.raises(SpecError) as caught:
        compile_model(export(model), "cpu")
    assert "'tags' and 'weights' on different sides" in caught.value.message


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weighted")
    model = composite(
        lambda m, tags, weights: tf.nn.safe_embedding_lookup_sparse(m.rows, tags, weights),
        tags=SPARSE,
        weights=WEIGHTS,
    )
    model.export(folder / "saved_model")
    (folder / "files").mkdir()
    return Served(compile_model(make_spec(folder / "saved_model", model.user), "cpu"), folder / "files")


@pytest.mark.parametrize(
    ("tags", "weights", "said"),
    [
        (
            [[1, 2]],
            [[1.0]],
            "'weights', candidate 0: the value has 1 elements, but that of 'tags' has 2",
        ),
        ([[1, 2]], [[1.0, -1.0]], "'weights', candidate 0: the value is -1, which is padding, unlike 'tags'"),
        ([[1, ROWS]], [[1.0, 1.0]], f"gives id {ROWS}"),
    ],
)
def test_request_whose_ids_and_weights_disagree_is_refused(weighted, tags, weights, said):
    request = {"user": {"age": 1.0}, "items": {"tags": tags, "weights": weights, "price": [1.0]}}
    with pytest.raises(RequestError) as caught:
        weighted.scores([request])
    assert said in str(caught.value)


#: What no rule knows is read by a piece, which makes the tensor of the padded rows.
UNKNOWN = {
    "sparse values": (SPARSE, lambda m, tags: counted(tf.sparse.to_dense(tags, -5) % 3 == 1)),
    "sparse text": (
        NAMES,
        lambda m, tags: counted(tf.strings.regex_full_match(tf.sparse.to_dense(tags, ""), "(a|b)+c?")),
    ),
    "sparse sum": (
        SPARSE,
        lambda m, tags: (
            tf.cast(tf.reshape(tf.sparse.reduce_sum(tags, axis=1), [-1, 1]), F) * [[0.1, 0.2, 0.3]]
        ),
    ),
    "ragged squares": (
        RAGGED,
        lambda m, tags: tf.cast(tf.reduce_sum(tags * tags, axis=1), F)[:, None] * [[0.1, 0.2, 0.3]],
    ),
}


def counted(truth):
    """How many of a row, three times."""
    return tf.repeat(tf.reduce_sum(tf.cast(truth, F), 1, keepdims=True), 3, axis=1)


@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("form", UNKNOWN)
def test_input_that_only_a_piece_can_read(parity, form, side):
    kind, function = UNKNOWN[form]
    compiled = parity(composite(function, user=("tags",) if side == "user" else (), tags=kind))
    (piece,) = [step for step in compiled.plan.steps if step.op == "subgraph"]
    assert [source.source for source in piece.inputs] == ["tags"]
    assert piece.side == side
