"""SavedModels of TensorFlow 1, and signatures of unusual form."""

from __future__ import annotations

import pytest
import tensorflow as tf
from compiler_helpers import make_spec
from compiler_parts import WORDS, Made, Module, made, variable
from compiler_tf1 import Tf1, inputs, v1, weights

from bireme.compiler.load import SavedModel
from bireme.compiler.pipeline import compile_model
from bireme.errors import CompileError

S, F, I64 = tf.string, tf.float32, tf.int64


def scalars(**more):
    return inputs(age=(F, [None]), price=(F, [None]), **more)


def dense(given, *columns, resource=True):
    """One hidden layer over some columns, two of them plain features."""
    x = tf.concat([*columns, given["age"][:, None], given["price"][:, None]], 1)
    kernel, bias = weights("kernel", x.shape[1], 4, resource=resource), weights("bias", 4, resource=resource)
    return {"score": tf.reduce_sum(tf.nn.relu(tf.matmul(x, kernel) + bias), 1)}


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("resource", [True, False])
def test_vocabulary_of_an_asset_file_and_both_kinds_of_variables(parity, words, resource):
    def build():
        given = scalars(word=(S, [None]))
        lines = tf.lookup.TextFileInitializer(
            words,
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        ids = tf.lookup.StaticHashTable(lines, len(WORDS)).lookup(given["word"])
        table = weights("table", len(WORDS) + 1, 3, resource=resource)
        return given, dense(given, v1.nn.embedding_lookup(table, ids), resource=resource)

    compiled = parity(Tf1(build, ("age",)))
    assert [step.op for step in compiled.plan.steps] == ["vocabulary", "embed", "numeric", "numeric"]
    assert [table.name for table in compiled.plan.tables] == ["table"]


def test_sparse_placeholder(parity):
    def build():
        given = scalars()
        tags = v1.sparse_placeholder(tf.string, [None, None], name="tags")
        ids = tf.SparseTensor(tags.indices, tf.strings.to_hash_bucket_fast(tags.values, 9), tags.dense_shape)
        found = v1.nn.safe_embedding_lookup_sparse(weights("table", 9, 3), ids, combiner="sqrtn")
        return {"tags": tags, **given}, dense(given, found)

    compiled = parity(Tf1(build, ("age",)))
    assert ("tags", -1, "") in [(f.name, f.length, f.padding) for f in compiled.plan.features]


def test_default_of_a_placeholder_does_not_stand_in_for_the_request(parity):
    def build():
        given = scalars()
        given["bias"] = v1.placeholder_with_default(tf.constant([5.0]), [None], "bias")
        return given, {"score": given["age"] * given["price"] + given["bias"]}

    parity(Tf1(build, ("age",)))


def test_signature_of_any_key(export):
    def build():
        given = scalars()
        return given, dense(given)

    model = Tf1(build, ("age",), signature="my.signature")
    with pytest.raises(CompileError) as caught:
        compile_model(export(model), "cpu")
    assert "it has: my.signature" in caught.value.message
    assert "`signature`" in caught.value.hint


def test_one_of_several_signatures(tmp_path):
    module = Module(table=variable(9, 3), other=variable(5, 2))
    scores = [
        tf.function(lambda code, price: {"score": tf.reduce_sum(tf.gather(module.table, code), -1) + price}),
        tf.function(lambda age, price: {"other": tf.reduce_sum(module.other[0]) * age * price}),
    ]
    signatures = {
        "rank": scores[0].get_concrete_function(tf.TensorSpec([None], I64), tf.TensorSpec([None], F)),
        "other": scores[1].get_concrete_function(tf.TensorSpec([None], F), tf.TensorSpec([None], F)),
    }
    Made(module, (), signatures).export(tmp_path / "m")
    compiled = compile_model(make_spec(tmp_path / "m", ["price"], signature="rank"), "cpu")
    assert [feature.name for feature in compiled.plan.features] == ["price", "code"]


def test_names_that_are_no_identifiers(parity):
    """TensorFlow 1 takes any text as the name of an input."""
    names = ["a b", "größe", "p:q", "dir/x", "9"]

    def build():
        plain = inputs(**{f"x{i}": (F, [None]) for i in range(len(names))})
        given = dict(zip(names, plain.values(), strict=True))
        x = tf.stack(list(given.values()), 1)
        return given, {"score": tf.matmul(x, weights("kernel", len(names), 1))[:, 0]}

    compiled = parity(Tf1(build, names[:2]))
    assert sorted(feature.name for feature in compiled.plan.features) == sorted(names)


@pytest.mark.parametrize("version", [1, 2])
def test_examples_are_refused_by_the_name_of_their_input(export, version):
    form = {"age": tf.io.FixedLenFeature([], F), "price": tf.io.FixedLenFeature([], F)}

    def build():
        packed = inputs(examples=(S, [None]))
        parsed = v1.io.parse_example(packed["examples"], form)
        return packed, {"score": parsed["age"] * parsed["price"]}

    if version == 1:
        model = Tf1(build, ("examples",))
    else:
        model = made(
            {},
            lambda m, examples: {
                "score": tf.io.parse_example(examples, form)["age"]
                * tf.io.parse_example(examples, form)["price"]
            },
            ("examples",),
            examples=(S, [None]),
        )
    with pytest.raises(CompileError) as caught:
        compile_model(export(model), "cpu")
    assert caught.value.where == "input 'examples'"
    assert "tf.Example" in caught.value.message
    assert "`signature`" in caught.value.hint


def test_initialisers_of_tables_are_not_part_of_the_signature(export, words):
    """They are in the graph's collections, which name ops that inlining has dropped."""

    def build():
        given = scalars(word=(S, [None]))
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(WORDS, list(range(len(WORDS))), tf.string, tf.int64), 0
        )
        return given, dense(given, v1.nn.embedding_lookup(weights("t", 6, 3), table.lookup(given["word"])))

    spec = export(Tf1(build, ("age",)))
    nodes = {node.op for node in SavedModel(spec.saved_model).graph_def.node}
    assert "LookupTableFindV2" in nodes
    assert not {"LookupTableImportV2", "InitializeTableFromTextFileV2"} & nodes
